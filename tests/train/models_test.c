#include "train/models/network.h"

#include "base/memory.h"
#include "engine/op.h"
#include "harness/check.h"

#include <math.h>

#define IMAGES(c, h, w, k)                                                                     \
    (rpi_data_shape) {                                                                         \
        .channels = (c), .height = (h), .width = (w), .classes = (k)                           \
    }

static rp_status build(const char *text, rpi_data_shape shape, rpi_network *network) {
    *network = (rpi_network){0};
    return rpi_network_build(text, &shape, network);
}

static void parameters_are_counted(void) {
    static const struct {
        const char *text;
        rpi_data_shape shape;
        int64_t count;
    } wanted[] = {
        {"mlp", IMAGES(1, 28, 28, 10), 203530},
        {"mlp:hidden=512x256", IMAGES(1, 28, 28, 10), 535818},
        {"resnet18", IMAGES(1, 28, 28, 10), 11172810},
        {"resnet18", IMAGES(3, 32, 32, 10), 11173962},
        {"resnet18:stem=imagenet", IMAGES(3, 224, 224, 1000), 11689512},
        {"resnet18", IMAGES(3, 128, 128, 1000), 11689512},
        {"resnet18:stem=small", IMAGES(3, 224, 224, 1000), 11689512 - 64 * 3 * (49 - 9)},
        {"resnet34:stem=imagenet", IMAGES(3, 224, 224, 1000), 21797672},
        {"resnet50:stem=imagenet", IMAGES(3, 224, 224, 1000), 25557032},
        {"resnet101:stem=imagenet", IMAGES(3, 224, 224, 1000), 44549160},
        {"resnet152:stem=imagenet", IMAGES(3, 224, 224, 1000), 60192808},
        {"vgg16", IMAGES(3, 224, 224, 1000), 138357544},
        {"vgg16-bn", IMAGES(3, 224, 224, 1000), 138365992},
        {"vgg16:hidden=512", IMAGES(3, 32, 32, 10), 14714688 + 2 * (512 * 512 + 512) + 5130},
        {"vit-b16", IMAGES(3, 224, 224, 1000), 86567656},
        {"vit", IMAGES(3, 32, 32, 10), 2693578},
        {"vit:ti16", IMAGES(3, 224, 224, 1000), 5717416},
        {"vit:s16", IMAGES(3, 224, 224, 1000), 22050664},
        {"vit:b16", IMAGES(3, 224, 224, 1000), 86567656},
        {"vit:b32", IMAGES(3, 224, 224, 1000), 88224232},
        {"vit:l16", IMAGES(3, 224, 224, 1000), 304326632},
        {"vit:layers=1,hidden=8,heads=2,patch=4,image=12", IMAGES(3, 12, 12, 5),
         8 * 48 + 8 + 8 + 10 * 8 + 4 * 16 - 16 - 16 + 3 * 8 * 8 + 24 + 8 * 8 + 8 + 8 * 32 + 32 +
             32 * 8 + 8 + 16 + 8 * 5 + 5},
        {"vit:layers=1,hidden=8,heads=2,patch=4,image=12,intermediate=5", IMAGES(3, 12, 12, 5),
         8 * 48 + 8 + 8 + 10 * 8 + 4 * 16 - 16 - 16 + 3 * 8 * 8 + 24 + 8 * 8 + 8 + 8 * 5 + 5 +
             5 * 8 + 8 + 16 + 8 * 5 + 5},
        {"resnet20", IMAGES(3, 32, 32, 10), 272474},
        {"resnet20:width=4", IMAGES(1, 28, 28, 10), 17462},
        /* Scales and shifts are as many as with batch norm. */
        {"resnet20:norm=group", IMAGES(3, 32, 32, 10), 272474},
        {"resnet50:norm=group,groups=32", IMAGES(3, 224, 224, 1000), 25557032},
        {"vgg16-bn:norm=group", IMAGES(3, 224, 224, 1000), 138365992},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        rpi_network network;
        REQUIRE_OK(build(wanted[i].text, wanted[i].shape, &network));
        CHECK_EQ(rpi_parameters_total(network.parameters, network.parameter_count),
                 wanted[i].count);
        const rpi_value *logits = rpi_graph_value(network.graph, network.logits);
        CHECK_EQ(logits->shape.dims, 2);
        CHECK_EQ(logits->shape.size[1], wanted[i].shape.classes);
        rpi_network_close(&network);
    }
}

static void names_are_torchvisions(void) {
    static const char *const names[] = {
        "conv1.weight",
        "bn1.weight",
        "bn1.bias",
        "bn1.running_mean",
        "bn1.running_var",
        "layer1.0.conv1.weight",
        "layer2.0.downsample.0.weight",
        "layer2.0.downsample.1.running_var",
        "layer4.1.bn2.bias",
        "fc.weight",
        "fc.bias",
    };
    rpi_network network;
    REQUIRE_OK(build("resnet18", IMAGES(3, 32, 32, 10), &network));
    CHECK_EQ(network.parameter_count, 62 + 40);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        bool found = false;
        for (int p = 0; p < network.parameter_count; p++)
            found = found || strcmp(network.parameters[p].name, names[i]) == 0;
        CHECK_MSG(found, "no %s", names[i]);
    }
    rpi_network_close(&network);
}

static int record_of(const rpi_network *network, const char *name) {
    for (int p = 0; p < network->parameter_count; p++)
        if (strcmp(network->parameters[p].name, name) == 0) return p;
    return 0;
}

/* Tensors with a gradient, and elements of running statistics, as torchvision has them. */
static void resnets_have_their_tensors(void) {
    static const struct {
        const char *text;
        int tensors;
        int64_t statistics;
    } wanted[] = {
        {"resnet18:stem=imagenet", 62, 9600},     {"resnet34:stem=imagenet", 110, 17024},
        {"resnet50:stem=imagenet", 161, 53120},   {"resnet101:stem=imagenet", 314, 105344},
        {"resnet152:stem=imagenet", 467, 151424},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        rpi_network network;
        REQUIRE_OK(build(wanted[i].text, IMAGES(3, 224, 224, 1000), &network));
        int tensors = 0;
        int64_t statistics = 0;
        for (int p = 0; p < network.parameter_count; p++) {
            bool is_state = network.parameters[p].is_state;
            tensors += !is_state;
            statistics += is_state ? rpi_shape_count(&network.parameters[p].shape) : 0;
        }
        CHECK_EQ(tensors, wanted[i].tensors);
        CHECK_EQ(statistics, wanted[i].statistics);
        rpi_network_close(&network);
    }
}

/* torchvision's names, which count every layer; ours of 32x32 differ in the first linear one.
 */
static void vgg_has_its_tensors(void) {
    static const struct {
        const char *text, *name;
        rpi_init_rule init;
        double spread;
    } wanted[] = {
        {"vgg16", "features.0.weight", RPI_INIT_NORMAL, sqrt(2.0 / (64 * 9))},
        {"vgg16", "features.0.bias", RPI_INIT_ZEROS, 0},
        {"vgg16", "features.28.weight", RPI_INIT_NORMAL, sqrt(2.0 / (512 * 9))},
        {"vgg16", "classifier.0.weight", RPI_INIT_NORMAL, 0.01},
        {"vgg16", "classifier.3.bias", RPI_INIT_ZEROS, 0},
        {"vgg16", "classifier.6.weight", RPI_INIT_NORMAL, 0.01},
        {"vgg16-bn", "features.1.weight", RPI_INIT_ONES, 0},
        {"vgg16-bn", "features.40.weight", RPI_INIT_NORMAL, sqrt(2.0 / (512 * 9))},
        {"vgg16-bn", "features.41.running_var", RPI_INIT_ONES, 0},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        rpi_network network;
        REQUIRE_OK(build(wanted[i].text, IMAGES(3, 224, 224, 1000), &network));
        int states = strcmp(wanted[i].text, "vgg16") == 0 ? 0 : 26;
        CHECK_EQ(network.parameter_count, states ? 58 + states : 32);
        int p = record_of(&network, wanted[i].name);
        CHECK_MSG(strcmp(network.parameters[p].name, wanted[i].name) == 0, "no %s",
                  wanted[i].name);
        CHECK_EQ(network.parameters[p].init, wanted[i].init);
        CHECK_NEAR(network.parameters[p].spread, wanted[i].spread, 1e-12);
        rpi_network_close(&network);
    }
}

/* torchvision's names, shapes and rules of the start. */
static void vit_has_its_tensors(void) {
    static const struct {
        const char *name;
        rpi_shape shape;
        rpi_init_rule init;
        double spread;
    } wanted[] = {
        {"class_token", {3, {1, 1, 768}}, RPI_INIT_ZEROS, 0},
        {"conv_proj.weight", {4, {768, 3, 16, 16}}, RPI_INIT_NORMAL, sqrt(1.0 / 768)},
        {"conv_proj.bias", {1, {768}}, RPI_INIT_ZEROS, 0},
        {"encoder.pos_embedding", {3, {1, 197, 768}}, RPI_INIT_NORMAL, 0.02},
        {"encoder.layers.encoder_layer_0.ln_1.weight", {1, {768}}, RPI_INIT_ONES, 0},
        {"encoder.layers.encoder_layer_3.self_attention.in_proj_weight",
         {2, {2304, 768}},
         RPI_INIT_UNIFORM,
         sqrt(6.0 / 3072)},
        {"encoder.layers.encoder_layer_3.self_attention.in_proj_bias",
         {1, {2304}},
         RPI_INIT_ZEROS,
         0},
        {"encoder.layers.encoder_layer_11.self_attention.out_proj.weight",
         {2, {768, 768}},
         RPI_INIT_UNIFORM,
         sqrt(1.0 / 768)},
        {"encoder.layers.encoder_layer_11.mlp.0.bias", {1, {3072}}, RPI_INIT_NORMAL, 1e-6},
        {"encoder.layers.encoder_layer_11.mlp.3.weight",
         {2, {768, 3072}},
         RPI_INIT_UNIFORM,
         sqrt(6.0 / 3840)},
        {"encoder.ln.bias", {1, {768}}, RPI_INIT_ZEROS, 0},
        {"heads.head.weight", {2, {1000, 768}}, RPI_INIT_ZEROS, 0},
    };
    rpi_network network;
    REQUIRE_OK(build("vit-b16", IMAGES(3, 224, 224, 1000), &network));
    CHECK_EQ(network.parameter_count, 152);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        const rpi_parameter *p = &network.parameters[record_of(&network, wanted[i].name)];
        CHECK_MSG(strcmp(p->name, wanted[i].name) == 0, "no %s", wanted[i].name);
        CHECK_MSG(rpi_shape_equal(&p->shape, &wanted[i].shape), "shape of %s", wanted[i].name);
        CHECK_EQ(p->init, wanted[i].init);
        CHECK_NEAR(p->spread, wanted[i].spread, 1e-12);
    }
    rpi_network_close(&network);
}

static void residuals_may_start_at_zero(void) {
    static const struct {
        const char *text, *norm;
        rpi_init_rule init;
    } wanted[] = {
        {"resnet34", "layer2.0.bn2.weight", RPI_INIT_ONES},
        {"resnet34:zero-init-residual=on", "layer2.0.bn1.weight", RPI_INIT_ONES},
        {"resnet34:zero-init-residual=on", "layer2.0.bn2.weight", RPI_INIT_ZEROS},
        {"resnet34:zero-init-residual=on", "layer2.0.downsample.1.weight", RPI_INIT_ONES},
        {"resnet50:zero-init-residual=on", "layer2.0.bn2.weight", RPI_INIT_ONES},
        {"resnet50:zero-init-residual=on", "layer2.0.bn3.weight", RPI_INIT_ZEROS},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        rpi_network network;
        REQUIRE_OK(build(wanted[i].text, IMAGES(3, 32, 32, 10), &network));
        int norm = record_of(&network, wanted[i].norm);
        REQUIRE(norm > 0);
        CHECK_EQ(network.parameters[norm].init, wanted[i].init);
        rpi_network_close(&network);
    }
}

static int group_of(const rpi_network *network, const char *name) {
    for (int i = 0; i < rpi_graph_node_count(network->graph); i++) {
        const rpi_node *node = rpi_graph_node(network->graph, i);
        if (strcmp(node->name, name) != 0 || strcmp(node->op->name, "group_norm") != 0)
            continue;
        return ((const rpi_group_norm_attributes *)node->attributes)->groups;
    }
    return 0;
}

/* Up to 32 groups, of 8 channels or more, that divide the channels; and names are torchvision's
 * with norm_layer=GroupNorm. */
static void norms_may_be_of_groups(void) {
    static const struct {
        const char *text, *norm;
        int groups;
    } wanted[] = {
        {"resnet20:norm=group", "bn1", 2},
        {"resnet20:norm=group", "layer2.0.downsample.1", 4},
        {"resnet20:norm=group", "layer3.2.bn2", 8},
        {"resnet20:norm=group,groups=16", "layer3.2.bn2", 16},
        {"resnet20:norm=group,width=4", "bn1", 1},
        {"resnet20:norm=group,width=25", "bn1", 1},
        {"resnet20:norm=group,width=25", "layer2.0.bn1", 5},
        {"resnet50:norm=group", "bn1", 8},
        {"resnet50:norm=group", "layer1.0.bn3", 32},
        {"resnet50:norm=group", "layer4.0.downsample.1", 32},
        {"vgg16-bn:norm=group", "features.41", 32},
        {"resnet20:norm=batch", "bn1", 0},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        char name[64];
        rpi_network network;
        REQUIRE_OK(build(wanted[i].text, IMAGES(3, 32, 32, 10), &network));
        CHECK_EQ(group_of(&network, wanted[i].norm), wanted[i].groups);
        for (int p = 0; p < network.parameter_count && wanted[i].groups; p++)
            CHECK(!network.parameters[p].is_state);
        snprintf(name, sizeof name, "%s.weight", wanted[i].norm);
        CHECK(strcmp(network.parameters[record_of(&network, name)].name, name) == 0);
        rpi_network_close(&network);
    }
}

static void groups_must_divide(void) {
    static const struct {
        const char *text, *why;
    } wanted[] = {
        {"resnet20:norm=group,groups=3", "groups=3 does not divide the 16 channels of bn1"},
        {"resnet20:norm=group,groups=32", "groups=32 does not divide the 16 channels of bn1"},
        {"vgg16-bn:norm=group,groups=128",
         "groups=128 does not divide the 64 channels of features.1"},
        {"resnet18:groups=32", "groups=32 is of norm=group, and this is norm=batch"},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        rpi_network network;
        CHECK_FAILS(build(wanted[i].text, IMAGES(3, 32, 32, 10), &network), INVALID,
                    wanted[i].why);
    }
}

static const rpi_data_shape some_tokens = {.sequence = 8};

/* Parameters and tensors of the published sizes. GPT-2's head is the table of tokens. */
static void decoders_have_their_sizes(void) {
    static const struct {
        const char *text;
        int64_t count;
        int tensors;
    } wanted[] = {
        {"gpt2", 124439808, 148},
        {"gpt2:vocabulary=50304", 124475904, 148},
        {"gpt2:medium", 354823168, 292},
        {"gpt2:large", 774030080, 436},
        {"gpt2:xl", 1557611200, 580},
        {"llama", 134105856, 111},
        {"llama:7b", 6738415616, 291},
        {"llama:13b", 13015864320, 363},
        {"llama:70b", 68976648192, 723},
        {"llama:smol", 134515008, 272},
        {"llama:smol,tied=off", 134515008 + 49152 * 576, 273},
        {"llama:qwen3-0.6b", 596049920, 310},
        {"llama:layers=1,hidden=32,heads=4,kv-heads=2,intermediate=40,vocabulary=8",
         2 * 8 * 32 + 32 * (32 + 16 + 16 + 32) + 3 * 32 * 40 + 3 * 32, 12},
        /* Llama-3.2-1B, and Qwen2-0.5B. */
        {"llama:layers=16,hidden=2048,heads=32,kv-heads=8,head=64,intermediate=8192,"
         "vocabulary=128256,tied=on,rope-factor=32,rope-original=8192",
         1235814400, 146},
        {"llama:layers=24,hidden=896,heads=14,kv-heads=2,intermediate=4864,vocabulary=151936,"
         "tied=on,qkv-bias=on",
         494032768, 290},
        {"transformer-xl", 151107538, 182},
        {"transformer-xl:base", 151107538, 182},
        {"transformer-xl:nvidia", 191950298, 182},
        {"transformer-xl:cutoffs=none", 151107538 - 1233, 180},
        {"transformer-xl:base,vocabulary=50257", 151107538 - 411 * 217478 - 411, 182},
        {"transformer-xl:layers=1,hidden=6,heads=2,head=5,inner=7,vocabulary=9",
         9 * 6 + 9 + 20 + 5 * 60 + 24 + 2 * 42 + 13, 15},
        {"gpt2:medium,layers=1,vocabulary=8", 1024 * 8 + 1024 * 1024 + 12596224 + 2048, 16},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        rpi_network network;
        REQUIRE_OK(build(wanted[i].text, some_tokens, &network));
        CHECK_EQ(rpi_parameters_total(network.parameters, network.parameter_count),
                 wanted[i].count);
        CHECK_EQ(network.parameter_count, wanted[i].tensors);
        rpi_network_close(&network);
    }
}

/* Without a pooler, as BertForQuestionAnswering. */
static void berts_head_of_spans_has_its_size(void) {
    rpi_network network;
    rpi_model_choice choice;
    char text[RPI_MODEL_TEXT] = "bert:base";
    REQUIRE_OK(rpi_model_add_head(text, "masked-lm"));
    CHECK(strcmp(text, "bert:base") == 0);
    REQUIRE_OK(rpi_model_add_head(text, "spans"));
    CHECK(strcmp(text, "bert:base,spans=on") == 0);
    REQUIRE_OK(rpi_model_parse(text, &choice));
    CHECK(strcmp(rpi_model_task(&choice), "spans") == 0);
    REQUIRE_OK(build(text, (rpi_data_shape){.sequence = 7}, &network));
    CHECK_EQ(rpi_parameters_total(network.parameters, network.parameter_count), 108893186);
    CHECK_EQ(network.parameter_count, 199);
    const rpi_shape *logits = &rpi_graph_value(network.graph, network.logits)->shape;
    CHECK(logits->dims == 3 && logits->size[1] == 2);
    rpi_network_close(&network);
    snprintf(text, sizeof text, "gpt2"); /* has no such head */
    REQUIRE_OK(rpi_model_add_head(text, "spans"));
    CHECK(strcmp(text, "gpt2") == 0);
}

/* Which words say a model does not matter, what it comes to does. */
static void one_model_has_many_texts(void) {
    static const struct {
        const char *text, *other;
        bool same;
    } rows[] = {
        {"gpt2", "gpt2", true},
        {"gpt2:layers=2,hidden=8,heads=2", "gpt2:heads=2,hidden=8,layers=2", true},
        {"gpt2:hidden=8,heads=2", "gpt2:hidden=8,heads=2,intermediate=32", true},
        {"gpt2:hidden=8,heads=2", "gpt2:hidden=8,heads=2,intermediate=31", false},
        {"gpt2:medium", "gpt2:layers=24,hidden=1024,heads=16", true},
        {"gpt2", "gpt2:activation=gelu-tanh,norm-epsilon=0.00001", true},
        {"gpt2", "gpt2:activation=gelu", false},
        {"bert", "bert:pre-ln=on", false},
        {"bert:spans=off", "bert", true},
        {"vit:layers=12,hidden=768,heads=12,patch=16", "vit-b16", false},
        {"gpt2", "no-model", false},
        {"gpt2:layers=0", "gpt2:layers=0", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        CHECK_MSG(rpi_model_is_same(rows[i].text, rows[i].other) == rows[i].same, "row %zu", i);
    rpi_model_choice choice;
    CHECK_FAILS(rpi_model_parse("bert:activation=gelu_new", &choice), INVALID,
                "'gelu_new' is no activation; gelu, gelu-tanh, relu or silu");
}

/* Both heads of pre-training count, the tied decoder once; pre-ln: Megatron's. */
static void bert_has_its_sizes(void) {
    static const struct {
        const char *text;
        int64_t count;
        int tensors;
    } wanted[] = {
        {"bert", 110106428, 206},
        {"bert:base", 110106428, 206},
        {"bert:vocabulary=28996", 108932934, 206},
        {"bert:positions=2048", 110106428 + 1536 * 768, 206},
        {"bert:large", 336226108, 398},
        {"bert:large,vocabulary=28996", 334661958, 398},
        {"bert:pre-ln=on,vocabulary=30592", 110160258, 206},
        {"bert:large,pre-ln=on,vocabulary=30592", 336297858, 398},
        {"bert:layers=1,hidden=8,heads=2,vocabulary=9,positions=7,dropout=0.1",
         (9 + 7 + 2) * 8 + 16 + 12 * 64 + 13 * 8 + (64 + 8) + (64 + 8 + 16 + 9) + 18, 30},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        rpi_network network;
        REQUIRE_OK(build(wanted[i].text, (rpi_data_shape){.sequence = 7}, &network));
        CHECK_EQ(rpi_parameters_total(network.parameters, network.parameter_count),
                 wanted[i].count);
        CHECK_EQ(network.parameter_count, wanted[i].tensors);
        const rpi_shape *logits = &rpi_graph_value(network.graph, network.logits)->shape;
        const rpi_shape *next = &rpi_graph_value(network.graph, network.sample_logits)->shape;
        CHECK(logits->dims == 3 && next->dims == 2 && next->size[1] == 2);
        rpi_network_close(&network);
    }
}

typedef struct start {
    const char *name;
    double mean, deviation;
} start;

static void check_start(const char *text, const start *wanted) {
    rpi_network network;
    rpi_weights *weights = NULL;
    REQUIRE_OK(build(text, some_tokens, &network));
    REQUIRE_OK(rpi_weights_create(network.graph, network.loss, &weights));
    rpi_network_initialise(&network, weights, 3);
    for (; wanted->name; wanted++) {
        const rpi_weight *weight = rpi_weights_find(weights, wanted->name);
        REQUIRE(weight);
        const float *values = rpi_weights_values(weights) + weight->first;
        double sum = 0, squares = 0, count = (double)weight->count;
        for (int64_t e = 0; e < weight->count; e++) {
            sum += (double)values[e];
            squares += (double)values[e] * (double)values[e];
        }
        double mean = sum / count, deviation = sqrt(fabs(squares / count - mean * mean));
        double spread = wanted->deviation / sqrt(count);
        CHECK_MSG(fabs(mean - wanted->mean) <= 5 * spread + 1e-9, "%s: mean %g", wanted->name,
                  mean);
        CHECK_MSG(fabs(deviation - wanted->deviation) < 0.05 * wanted->deviation + 1e-9,
                  "%s: deviation %g", wanted->name, deviation);
    }
    rpi_weights_destroy(weights);
    rpi_network_close(&network);
}

static void gpt2_starts_as_published(void) {
    static const start wanted[] = {
        {"wte.weight", 0, 0.02},
        {"wpe.weight", 0, 0.02},
        {"h.0.ln_1.weight", 1, 0},
        {"h.3.attn.c_attn.weight", 0, 0.02},
        {"h.3.attn.c_attn.bias", 0, 0},
        {"h.2.attn.c_proj.weight", 0, 0.02 / sqrt(8)},
        {"h.1.mlp.c_fc.weight", 0, 0.02},
        {"h.1.mlp.c_proj.weight", 0, 0.02 / sqrt(8)},
        {"ln_f.bias", 0, 0},
        {0},
    };
    check_start("gpt2:layers=4,hidden=64,heads=4,vocabulary=300,positions=100", wanted);
}

static void transformer_xl_starts_as_published(void) {
    static const start wanted[] = {
        {"word_emb.emb_layers.0.weight", 0, 0.02},
        {"r_w_bias", 0, 0.02},
        {"layers.0.dec_attn.qkv_net.weight", 0, 0.02},
        {"layers.1.dec_attn.r_net.weight", 0, 0.02},
        {"layers.1.dec_attn.layer_norm.weight", 1, 0.02},
        {"layers.1.dec_attn.layer_norm.bias", 0, 0},
        {"layers.0.pos_ff.CoreNet.3.weight", 0, 0.02},
        {"layers.0.pos_ff.CoreNet.3.bias", 0, 0},
        {"crit.out_layers.0.bias", 0, 0},
        {0},
    };
    check_start("transformer-xl:layers=2,hidden=400,heads=20,head=40,inner=200,vocabulary=999",
                wanted);
}

static void llama_starts_as_published(void) {
    static const start wanted[] = {
        {"model.embed_tokens.weight", 0, 0.02},
        {"model.layers.0.input_layernorm.weight", 1, 0},
        {"model.layers.1.self_attn.k_proj.weight", 0, 0.02},
        {"model.layers.0.self_attn.o_proj.weight", 0, 0.02},
        {"model.layers.1.mlp.down_proj.weight", 0, 0.02},
        {"model.norm.weight", 1, 0},
        {"lm_head.weight", 0, 0.02},
        {0},
    };
    static const start otherwise[] = {
        {"model.embed_tokens.weight", 0, 0.1},
        {"model.layers.1.self_attn.q_proj.weight", 0, 0.1},
        {"model.layers.1.self_attn.q_proj.bias", 0, 0},
        {"model.layers.0.self_attn.o_proj.weight", 0, 0.1 / 2},
        {"model.layers.0.self_attn.q_norm.weight", 1, 0},
        {"model.layers.1.mlp.down_proj.weight", 0, 0.1 / 2},
        {"model.layers.1.mlp.up_proj.weight", 0, 0.1},
        {"lm_head.weight", 0, 0.1},
        {0},
    };
    check_start("llama:layers=2,hidden=64,heads=4,kv-heads=2,vocabulary=300", wanted);
    check_start("llama:layers=2,hidden=64,heads=4,kv-heads=2,vocabulary=300,init-std=0.1,"
                "init-scaled=on,attention-bias=on,qk-norm=on",
                otherwise);
}

static void bert_starts_as_published(void) {
    static const start wanted[] = {
        {"bert.embeddings.word_embeddings.weight", 0, 0.02},
        {"bert.embeddings.position_embeddings.weight", 0, 0.02},
        {"bert.embeddings.LayerNorm.weight", 1, 0},
        {"bert.encoder.layer.0.attention.self.query.weight", 0, 0.02},
        {"bert.encoder.layer.1.attention.output.dense.weight", 0, 0.02},
        {"bert.encoder.layer.1.output.dense.bias", 0, 0},
        {"bert.pooler.dense.weight", 0, 0.02},
        {"cls.predictions.transform.dense.weight", 0, 0.02},
        {"cls.predictions.bias", 0, 0},
        {0},
    };
    static const start megatrons[] = {
        {"bert.encoder.layer.1.attention.ln.weight", 1, 0},
        {"bert.encoder.layer.1.intermediate.dense.weight", 0, 0.02},
        {"bert.encoder.layer.1.attention.output.dense.weight", 0, 0.01},
        {"bert.encoder.layer.0.output.dense.weight", 0, 0.01},
        {"bert.encoder.ln.bias", 0, 0},
        {0},
    };
    check_start("bert:layers=2,hidden=64,heads=4,vocabulary=300,positions=100", wanted);
    check_start("bert:layers=2,hidden=64,heads=4,vocabulary=300,pre-ln=on", megatrons);
}

static void initial_values_follow_their_rules(void) {
    rpi_network network;
    rpi_weights *weights = NULL, *again = NULL;
    REQUIRE_OK(build("resnet20", IMAGES(3, 32, 32, 10), &network));
    REQUIRE_OK(rpi_weights_create(network.graph, network.loss, &weights));
    REQUIRE_OK(rpi_weights_create(network.graph, network.loss, &again));
    rpi_network_initialise(&network, weights, 5);
    rpi_network_initialise(&network, again, 5);
    size_t bytes = (size_t)rpi_weights_count(weights) * sizeof(float);
    CHECK(memcmp(rpi_weights_values(weights), rpi_weights_values(again), bytes) == 0);
    int conv = record_of(&network, "layer3.2.conv2.weight");
    float *w = rpi_network_elements(&network, weights, conv);
    int64_t count = rpi_shape_count(&network.parameters[conv].shape);
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < count; i++) sum += w[i], squares += (double)w[i] * w[i];
    double deviation = sqrt(2.0 / (64 * 9)); /* fan-out */
    CHECK_NEAR(sum / (double)count, 0, 5 * deviation / sqrt((double)count));
    CHECK_NEAR(sqrt(squares / (double)count) / deviation, 1, 5 / sqrt(2.0 * (double)count));
    CHECK_NEAR(rpi_network_elements(&network, weights, record_of(&network, "bn1.weight"))[3], 1,
               0);
    CHECK_NEAR(
        rpi_network_elements(&network, weights, record_of(&network, "bn1.running_var"))[3], 1,
        0);
    w = rpi_network_elements(&network, weights, record_of(&network, "fc.weight"));
    for (int i = 0; i < 640; i++) CHECK(fabsf(w[i]) <= 0.125f);
    rpi_weights_destroy(weights);
    rpi_weights_destroy(again);
    rpi_network_close(&network);
}

static void what_is_small_travels_exact(void) {
    rpi_network network;
    REQUIRE_OK(build("resnet20", IMAGES(3, 32, 32, 10), &network));
    for (int p = 0; p < network.parameter_count; p++) {
        const rpi_parameter *parameter = &network.parameters[p];
        int64_t count = rpi_shape_count(&parameter->shape);
        CHECK_EQ(rpi_parameter_compresses(parameter),
                 parameter->shape.dims > 1 && count >= 10000);
    }
    rpi_network_close(&network);
}

static void mistakes_are_named(void) {
    static const struct {
        const char *text, *part;
    } bad[] = {
        {"resnet19", "did you mean 'resnet1"},
        {"transformer", "there are mlp, resnet20, resnet18, resnet34, resnet50, resnet101, "
                        "resnet152, vgg16, vgg16-bn, vit, vit-b16, gpt2, llama, bert"},
        {"mlp:width=3", "does not take 'width'"},
        {"mlp:hidden=0", "'0' is no width"},
        {"mlp:hidden=3y", "not like 512x256"},
        {"mlp:hidden=1x1x1x1x1x1x1x1x1", "more than 8"},
        {"resnet18:stem=big", "no stem"},
        {"resnet18:norm=layer", "'layer' is no norm of images; batch or group"},
        {"vgg16:norm=group", "does not take 'norm'"},
        {"resnet18:width=64z", "model resnet18: width: "},
        {"resnet18:width=0", "1 to 65536 are allowed"},
        {"resnet18:width", "does not take 'width'; options: width=64, stem=auto"},
        {"resnet18:width", "; width wants a value"},
        {"llama:rope-bass=2", "(redpoll info says what they mean); did you mean 'rope-base'?"},
        {"resnet34:zero-init-residual=2", "model resnet34: zero-init-residual: "},
        {"resnet20:stem=small", "does not take 'stem'"},
        {"gpt2:huge", "does not take 'huge'; sizes: medium, large, xl; options: layers=12"},
        {"gpt2:layers=0", "model gpt2: layers: "},
        {"vgg16", "images are 28x28; five poolings need at least 32x32"},
        {"vgg16-bn:dropout=2", "model vgg16-bn: dropout: "},
        {"vit:huge",
         "does not take 'huge'; sizes: ti16, s16, b16, b32, l16; options: layers=6"},
        {"vit:heads=5", "hidden=192 is no multiple of heads=5"},
        {"vit:image=32", "image=32, and the data's pictures are 28x28: leave image= out"},
        {"vit:patch=0", "model vit: patch: "},
        {"vit-b16", "pictures of 28x28 cannot be cut into patches of 16x16"},
        {"llama:30b",
         "does not take '30b'; sizes: 7b, 13b, 70b, smol, qwen3-0.6b; options: layers=12"},
        {"llama:heads=7", "hidden=768 is no multiple of heads=7"},
        {"llama:hidden=30,heads=10", "are 3 a head; rotary positions need an even number"},
        {"llama:heads=1", "are 768 a head; rotary positions need an even number of 256"},
        {"llama:kv-heads=5", "kv-heads=5 is no divisor of heads=12"},
        {"llama:tied=perhaps", "model llama: tied: "},
        {"llama:rope-yarn=on", "rope-yarn=on wants rope-original=N, the tokens of a text in"},
        {"llama:rope-yarn=on,rope-original=8,rope-base=1", "and a rope-base above 1"},
        {"llama:rope-attention=2", "rope-attention=2 is of rope-yarn=on alone"},
        {"llama:rope-original=8,rope-high=1", "rope-high=1 is not above rope-low=1"},
        {"bert:huge", "does not take 'huge'; sizes: base, large; options: layers=12"},
        {"bert:heads=7", "hidden=768 is no multiple of heads=7"},
        {"bert:heads=2", "are 384 a head; 256 are the most"},
        {"bert:dropout=1", "model bert: dropout: "},
        {"gpt2:attention-dropout=1", "model gpt2: attention-dropout: "},
        {"vit:dropout=-1", "model vit: dropout: "},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        rpi_network network;
        CHECK_FAILS(build(bad[i].text, IMAGES(1, 28, 28, 10), &network), INVALID, bad[i].part);
    }
}

static void data_that_do_not_fit_are_named(void) {
    static const char *const models[] = {"gpt2:vocabulary=300,positions=100",
                                         "llama:vocabulary=300,positions=100",
                                         "bert:vocabulary=300,positions=100"};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        rpi_network network;
        rpi_data_shape longer = {.sequence = 101}, wider = {.sequence = 8, .vocabulary = 301};
        CHECK_FAILS(build(models[i], longer, &network), INVALID,
                    "the model has 100 positions: use --seq-length 100 or less, or "
                    "positions=101");
        CHECK_FAILS(
            build(models[i], wider, &network), INVALID,
            "a vocabulary of 301 tokens, the model one of 300: make the data by the model's "
            "tokenizer, or, of a new model, use vocabulary=301");
    }
}

static void memory_that_runs_out_is_reported(void) {
    for (long n = 1; n < 10000; n++) {
        rpi_network network;
        rpi_memory_fail_after(n);
        rp_status status = build("resnet20", IMAGES(1, 28, 28, 10), &network);
        rpi_memory_fail_after(0);
        if (status == RP_OK) {
            CHECK(n > 10);
            rpi_network_close(&network);
            return;
        }
        CHECK_EQ(status, RP_NOMEM);
    }
    CHECK(!"it never succeeds");
}

CASES({"parameters are counted", parameters_are_counted},
      {"names are torchvision's", names_are_torchvisions},
      {"ResNets have their tensors", resnets_have_their_tensors},
      {"VGG has its tensors", vgg_has_its_tensors},
      {"ViT has its tensors", vit_has_its_tensors},
      {"residuals may start at zero", residuals_may_start_at_zero},
      {"norms may be of groups", norms_may_be_of_groups},
      {"groups must divide", groups_must_divide},
      {"decoders have their sizes", decoders_have_their_sizes},
      {"BERT has its sizes", bert_has_its_sizes},
      {"BERT's head of spans has its size", berts_head_of_spans_has_its_size},
      {"BERT starts as published", bert_starts_as_published},
      {"GPT-2 starts as published", gpt2_starts_as_published},
      {"Transformer-XL starts as published", transformer_xl_starts_as_published},
      {"LLaMA starts as published", llama_starts_as_published},
      {"initial values follow their rules", initial_values_follow_their_rules},
      {"what is small travels exact", what_is_small_travels_exact},
      {"mistakes are named", mistakes_are_named},
      {"data that do not fit are named", data_that_do_not_fit_are_named},
      {"memory that runs out is reported", memory_that_runs_out_is_reported},
      {"one model has many texts", one_model_has_many_texts})

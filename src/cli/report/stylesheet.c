#include "cli/report/stylesheet.h"

/* Seven colours that can be distinguished with all three colour deficiencies (Machado, Oliveira
 * and Fernandes 2009: no pair of either palette is closer than 14 in CIE Lab), and have at
 * least 3 : 1 against the paper. */
#define LIGHT                                                                                  \
    "--paper:#fff;--ink:#1c1f23;--soft:#5c636b;--line:#9aa1a9;--grid:#e4e7ea;--wash:#f6f7f8;"  \
    "--k0:#0072b2;--k1:#d55e00;--k2:#009e73;--k3:#5a1846;--k4:#9060fc;--k5:#303c0c;"           \
    "--k6:#3c18a8;--compute:#7c98ae;--network:#d55e00;--skew:#5a1846;--comm:#dca878;"          \
    "--codec:#9060fc;"
#define DARK                                                                                   \
    "--paper:#0d1117;--ink:#e6e9ec;--soft:#9aa4ae;--line:#5b646e;--grid:#252b33;"              \
    "--wash:#161b22;--k0:#4da3e8;--k1:#f08a3c;--k2:#2fc49a;--k3:#ffd9ec;--k4:#8460fc;"         \
    "--k5:#c0f09c;--k6:#e43c54;--compute:#5f7f99;--network:#f08a3c;--skew:#ead94c;"            \
    "--comm:#8f6440;--codec:#9d80ff;"

static const char palette[] = ":root{color-scheme:light dark;" LIGHT "}\n"
                              "@media (prefers-color-scheme:dark){:root{" DARK "}}\n"
                              "@media print{:root{color-scheme:light;" LIGHT "}}\n";

static const char marks[] =
    "svg text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,"
    "sans-serif;fill:var(--ink);font-variant-numeric:tabular-nums}\n"
    "svg .ticks text,svg text.title{fill:var(--soft)}\n"
    "svg text.end{text-anchor:end}svg text.middle{text-anchor:middle}\n"
    "svg text.heading{font-size:15px;font-weight:600}\n"
    "svg text.subtitle,svg text.caption{fill:var(--soft)}svg text.caption{font-size:11px}\n"
    "svg .ground{fill:var(--paper)}\n"
    "svg path{fill:none;vector-effect:non-scaling-stroke}\n"
    ".grid path{stroke:var(--grid)}.axis path{stroke:var(--line)}\n"
    ".line{stroke-width:1.8;stroke-linejoin:round;stroke-linecap:round}\n"
    ".raw{stroke-width:1;stroke-opacity:.3;stroke-linejoin:round}\n"
    "svg .band{stroke:none;fill-opacity:.14}\n"
    ".series:hover .line{stroke-width:3.2}\n"
    ".k0{--k:var(--k0)}.k1{--k:var(--k1)}.k2{--k:var(--k2)}.k3{--k:var(--k3)}"
    ".k4{--k:var(--k4)}.k5{--k:var(--k5)}.k6{--k:var(--k6)}.reference{--k:var(--line)}\n"
    ".line,.raw{stroke:var(--k)}svg .band{fill:var(--k)}circle,rect{fill:var(--k)}\n"
    ".reference .line{stroke-width:1.2;stroke-dasharray:2 3}\n"
    ".d1 .line{stroke-dasharray:7 4}.d2 .line{stroke-dasharray:1.5 4}"
    ".d3 .line{stroke-dasharray:9 4 1.5 4}.d4 .line{stroke-dasharray:14 5}"
    ".d5 .line{stroke-dasharray:9 4 1.5 4 1.5 4}.d6 .line{stroke-dasharray:3 3}.d7 "
    ".line{stroke-dasharray:1.5 3 6 3}\n"
    "rect.compute{fill:var(--compute)}rect.network{fill:var(--network)}"
    "rect.skew{fill:var(--skew)}rect.comm{fill:var(--comm)}rect.codec{fill:var(--codec)}\n"
    "rect.box{fill-opacity:.45}rect.whisker{fill-opacity:.8}\n";

static const char page[] =
    "*{box-sizing:border-box}\n"
    "html{-webkit-text-size-adjust:100%}\n"
    "body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,"
    "-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif}\n"
    "main{max-width:1240px;margin:0 auto;padding:40px 24px 64px}\n"
    "h1{font-size:26px;line-height:1.2;font-weight:650;margin:0 0 6px;letter-spacing:-.01em;"
    "overflow-wrap:anywhere}\n"
    "h2{font-size:18px;font-weight:650;margin:48px 0 12px}\n"
    ".scroll+p{margin-top:14px}p{margin:0 0 "
    "12px;max-width:74ch}p.lead{color:var(--soft);font-size:16px}\n"
    ".small,figcaption,caption{font-size:13px;line-height:1.45;color:var(--soft)}\n"
    ".figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,500px),1fr));"
    "gap:44px 40px;align-items:start}\n"
    "figure{margin:0;min-width:0}figure svg{display:block;width:100%;height:auto}\n"
    "figure h3{font-size:15px;font-weight:600;margin:0 0 8px}\n"
    "figcaption{margin-top:6px;max-width:74ch}\n"
    ".legend{list-style:none;display:flex;flex-wrap:wrap;gap:2px 18px;margin:0 0 8px;padding:0;"
    "font-size:13px}\n"
    ".legend li{display:flex;align-items:center;gap:7px;max-width:100%;min-width:0}\n"
    ".legend span{overflow:hidden;text-overflow:ellipsis;white-space:nowrap}\n"
    "svg.key,figure .legend svg{flex:none;width:26px;height:10px;display:inline-block}\n"
    ".scroll{overflow-x:auto}\n"
    "table{border-collapse:collapse;font-size:13.5px;font-variant-numeric:tabular-nums;"
    "margin:0}\n"
    "caption{text-align:left;padding:0 0 6px}\n"
    "th,td{padding:5px 14px 5px 0;text-align:left;vertical-align:top;white-space:nowrap}\n"
    "th{font-weight:500;color:var(--soft)}tbody th{color:var(--ink)}\n"
    "td.n,th.n{text-align:right}\n"
    "thead th{border-bottom:1px solid var(--line)}tbody tr{border-bottom:1px solid "
    "var(--grid)}\n"
    "td.wide{white-space:normal;overflow-wrap:anywhere;min-width:16ch}\n"
    "details{margin:8px 0;font-size:13.5px}summary{cursor:pointer;color:var(--soft);"
    "width:fit-content}summary:hover{color:var(--ink)}\n"
    "details[open] summary{margin-bottom:8px}\n"
    "summary:focus-visible,.scroll:focus-visible{outline:2px solid var(--k0);"
    "outline-offset:2px}\n"
    "pre{background:var(--wash);border:1px solid var(--grid);padding:12px 14px;margin:0;"
    "overflow-x:auto;font:12.5px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}\n"
    "ul.notes{margin:0;padding-left:1.2em;max-width:90ch}ul.notes li{margin:3px 0;"
    "overflow-wrap:anywhere}\n"
    "footer{margin-top:56px;padding-top:12px;border-top:1px solid var(--grid)}\n"
    "@media (max-width:600px){main{padding:24px 16px 40px}h1{font-size:22px}\n"
    "figure>svg text{font-size:19px}}\n"
    "@media print{main{padding:0;max-width:none}body{font-size:10pt}h2{margin:22px 0 8px;"
    "break-after:avoid}figure,tr{break-inside:avoid}.scroll{overflow:visible}"
    "table{font-size:7.5pt}th,td{padding:3px 8px 3px 0}td.wide{min-width:0}"
    ".figures{display:block;columns:2;column-gap:24px}figure{margin:0 0 18px}"
    "figure h3{font-size:10pt}.small,figcaption,.legend{font-size:8pt}"
    "figure>svg text{font-size:15px}details:not([open]){display:none}}\n";

void rpi_stylesheet_figure(FILE *stream) {
    fputs(palette, stream);
    fputs(marks, stream);
}

void rpi_stylesheet_page(FILE *stream) {
    rpi_stylesheet_figure(stream);
    fputs(page, stream);
}

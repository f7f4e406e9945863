# redpoll_lines(FILE OUTPUT HEADER NAME): a C file that defines `const char *const NAME[]`, the lines of a text, which it
# is made again for when the text changes. The text has no semicolons and brackets, which CMake's lists would take apart.
function(redpoll_lines file output header name)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(STRINGS ${file} lines)
  set(text "#include \"${header}\"\n\n#include <stddef.h>\n\nconst char *const ${name}[] = {\n")
  foreach(line IN LISTS lines)
    string(REPLACE "\\" "\\\\" line "${line}")
    string(REPLACE "\"" "\\\"" line "${line}")
    string(APPEND text "    \"${line}\",\n")
  endforeach()
  string(APPEND text "    NULL,\n};\n")
  file(CONFIGURE OUTPUT ${output} CONTENT "${text}" @ONLY)
endfunction()

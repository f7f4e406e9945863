# cmake -DREDPOLL=build/dev/src/cli/redpoll -DFOLDER=build/dev/share -P WriteDocuments.cmake
# Manual pages and completions, which the command writes from its own tables, where an installed
# system looks for them below its share folder.

function(write_document file)
  execute_process(COMMAND ${REDPOLL} ${ARGN} OUTPUT_FILE ${FOLDER}/${file} RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "redpoll ${ARGN} failed")
  endif()
endfunction()

file(REMOVE_RECURSE ${FOLDER})
foreach(folder man/man1 bash-completion/completions zsh/site-functions fish/vendor_completions.d)
  file(MAKE_DIRECTORY ${FOLDER}/${folder})
endforeach()
execute_process(COMMAND ${REDPOLL} man OUTPUT_VARIABLE pages RESULT_VARIABLE result)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "redpoll man failed")
endif()
string(REGEX MATCHALL "[^\n]+" pages "${pages}")
foreach(page ${pages})
  write_document(man/man1/${page}.1 man ${page})
endforeach()
write_document(bash-completion/completions/redpoll completion bash)
write_document(zsh/site-functions/_redpoll completion zsh)
write_document(fish/vendor_completions.d/redpoll.fish completion fish)

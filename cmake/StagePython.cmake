# cmake -DSOURCE=python -DSTAGE=build/dev/python -DLIBRARY=build/dev/libredpoll.so.0.2.0
# -DPROGRAM=build/dev/src/cli/redpoll -P StagePython.cmake
# Links are made only where they are missing or point elsewhere: tests may be running.

function(stage target link)
  if(IS_SYMLINK ${link})
    file(READ_SYMLINK ${link} now)
    if(now STREQUAL target)
      return()
    endif()
  endif()
  get_filename_component(folder ${link} DIRECTORY)
  file(MAKE_DIRECTORY ${folder})
  file(CREATE_LINK ${target} ${link} SYMBOLIC)
endfunction()

function(drop_dangling folder)
  file(GLOB links ${folder}/*)
  foreach(link ${links})
    if(IS_SYMLINK ${link})
      file(REAL_PATH ${link} target)
      if(NOT EXISTS ${target})
        file(REMOVE ${link})
      endif()
    endif()
  endforeach()
endfunction()

# Modules and packages of a folder; a package is linked whole.
function(stage_folder from to)
  file(GLOB entries RELATIVE ${from} ${from}/*.py ${from}/py.typed ${from}/*/__init__.py)
  list(TRANSFORM entries REPLACE "/__init__\\.py$" "")
  foreach(entry ${entries})
    stage(${from}/${entry} ${to}/${entry})
  endforeach()
  drop_dangling(${to})
endfunction()

stage_folder(${SOURCE}/redpoll ${STAGE}/redpoll)
stage_folder(${SOURCE}/cgx ${STAGE})
stage(${LIBRARY} ${STAGE}/redpoll/_lib/libredpoll.so)
if(PROGRAM)
  stage(${PROGRAM} ${STAGE}/redpoll/_lib/redpoll)
endif()

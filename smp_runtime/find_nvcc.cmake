# smp_find_nvcc(RESULT MAJOR FOLDER...): the first nvcc in FOLDERs that is of CUDA release MAJOR, and
# otherwise <RESULT>-NOTFOUND. RESULT_REJECTED lists those that are of another one: an older toolkit
# on PATH must not hide the one that fits torch. By its real path: whichever link leads to a toolkit,
# objects are the same in the compiler's cache.
function(smp_find_nvcc result major)
  set(rejected "")
  foreach(folder IN LISTS ARGN)
    set(nvcc "${folder}/nvcc")
    if(NOT EXISTS "${nvcc}" OR IS_DIRECTORY "${nvcc}")
      continue()
    endif()
    execute_process(COMMAND "${nvcc}" --version OUTPUT_VARIABLE version ERROR_QUIET)
    if(version MATCHES "release ${major}\\.")
      file(REAL_PATH "${nvcc}" real)
      set(${result} "${real}" PARENT_SCOPE)
      return()
    endif()
    string(REGEX MATCH "release [0-9.]+" release "${version}")
    list(APPEND rejected "${nvcc} (${release})")
  endforeach()
  set(${result} "${result}-NOTFOUND" PARENT_SCOPE)
  set(${result}_REJECTED "${rejected}" PARENT_SCOPE)
endfunction()

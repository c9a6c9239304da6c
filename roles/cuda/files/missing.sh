#!/bin/sh
# missing.sh FOLDER VERSION [BEGUN]: print a line for each missing part of the CUDA toolkit VERSION in FOLDER.
# NVIDIA's installers may end with status 0 and leave an almost empty folder. After a patch, BEGUN is the file
# that run_installer.sh writes: a patch must change files of the toolkit. Patch 1 of CUDA 9.2.148 has cuBLAS 9.2.174.
folder=$1 version=$2 begun=$3
"$folder/bin/nvcc" --version 2>/dev/null | grep -qF "release $version," || echo "bin/nvcc of release $version"
for name in bin/ptxas bin/nvlink bin/fatbinary include/cuda.h; do
    [ -s "$folder/$name" ] || echo "$name"
done
for name in cudart cublas cufft curand cusolver cusparse nvrtc nvrtc-builtins nvToolsExt; do
    found=
    for file in "$folder/lib64/lib$name.so"*; do
        [ -s "$file" ] && found=$file
    done
    [ -n "$found" ] || echo "lib64/lib$name.so"
done
[ -z "$begun" ] || [ -n "$(find "$folder/" -type f -cnewer "$begun" ! -name '.mxcluster-*' -print -quit)" ] ||
    echo "the files of the patch"
if [ -n "$begun" ] && [ "$version" = 9.2 ]; then
    [ -s "$folder/lib64/libcublas.so.9.2.174" ] || echo "lib64/libcublas.so.9.2.174"
    grep -qsx "CUDA Patch Version 9.2.148.1" "$folder/version.txt" || echo "version.txt of patch 9.2.148.1"
fi

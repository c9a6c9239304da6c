#!/bin/sh
# missing.sh FOLDER VERSION: print a line for each missing part of the CUDA toolkit VERSION in FOLDER.
# NVIDIA's installers may end with status 0 and leave an almost empty folder.
folder=$1 version=$2
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

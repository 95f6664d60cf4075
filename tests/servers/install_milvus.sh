#!/usr/bin/env bash
# Installs a real Milvus 2.3.5 for the long tests of vector_index and for bench/backends. A venv of
# its own (1 GB), since the package is a binary that wants an older pymilvus and setuptools.
set -euo pipefail
folder=${1:-$HOME/.cache/skipstone-test-servers}
python=${PYTHON:-python3.11}
mkdir -p "$folder"

if [ ! -x "$folder/milvus/bin/milvus-server" ]; then
  "$python" -m venv "$folder/milvus"
  "$folder/milvus/bin/pip" install --quiet 'milvus==2.3.5' 'pymilvus==2.3.7' 'setuptools<80'
fi
echo "installed in $folder"

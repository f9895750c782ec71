#!/usr/bin/env bash
# EfficientNet-Lite0 with its ImageNet weights, to int8 for two backends, by commands.
#
# Calibrates on ten of twenty labelled photos, evaluates on the other ten, and shows what `inspect` says of a file that
# is asked to run where it does not fit. The files it writes are in out/. examples/lite0.py does the same from Python.
# `qtool` must be on the PATH: `. .venv/bin/activate` after `make setup`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p out

for backend in fbgemm qnnpack; do
    qtool prepare "configs/efficientnet-lite0-$backend.yaml" -o - | qtool convert - -o "out/lite0-$backend.pt2" --verify
    qtool inspect "out/lite0-$backend.pt2"
done

# May the qnnpack file run on fbgemm, on a CPU without VNNI? It may not: status 1, and the nodes are named.
if qtool inspect out/lite0-qnnpack.pt2 --backend fbgemm --isa no-vnni; then
    echo "a file with full ranges should not fit fbgemm without VNNI" >&2
    exit 1
fi

for backend in fbgemm qnnpack; do
    qtool evaluate "out/lite0-$backend.pt2" --config "configs/efficientnet-lite0-$backend.yaml"
done

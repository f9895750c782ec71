#!/usr/bin/env bash
# The CNN of fashion_mnist.py to int8 in one pipe: trained on, inspected, evaluated, exported. Its files are in out/.
# `qtool` must be on the PATH: `. .venv/bin/activate` after `make setup`. Needs `make data` and fashion_mnist.py before.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

for needed in .data/usr/share/datasets/fashion-mnist out/fashion.pth; do
    if [ ! -e "$needed" ]; then
        echo "$needed is missing: run 'make data' and 'python examples/fashion_mnist.py' first" >&2
        exit 1
    fi
done

config=examples/fashion_mnist.yaml
qtool prepare "$config" -o - | qtool train "$config" --prepared - -o - | qtool convert - -o out/fashion-pipe.pt2 --verify
qtool inspect out/fashion-pipe.pt2
qtool evaluate out/fashion-pipe.pt2 --config "$config"
qtool export out/fashion-pipe.pt2 -o out/fashion-pipe.onnx

#!/usr/bin/env bash
# Fetch Fashion-MNIST (31 MB) from Debian's package dataset-fashion-mnist into .data/, as any user. `make data` runs this.
#
# The four files lie then in .data/usr/share/datasets/fashion-mnist. Nothing is installed, and a second run does nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

package=dataset-fashion-mnist
folder=.data/usr/share/datasets/fashion-mnist

give_up() {
    echo "make data: $1" >&2
    echo "Without it the examples look in /usr/share/datasets/fashion-mnist, and then take scikit-learn's digits." >&2
    exit 1
}

if [ -e "$folder" ]; then
    echo "$folder is there"
    exit 0
fi
for program in apt-get dpkg-deb; do
    command -v "$program" >/dev/null || give_up "$program is missing: this needs Debian or a system made from it.
Elsewhere put the four files of https://github.com/zalandoresearch/fashion-mnist into $folder."
done

mkdir -p .data
work=$(mktemp -d "$PWD/.data/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
(
    cd "$work"
    # Without root there is no other user to download as; as root, a folder of ours is closed to that other user.
    apt-get -qq -o "APT::Sandbox::User=$(id -un)" download "$package"
) || give_up "apt-get cannot download $package: see its message above. It needs a network and a list of packages,
which 'apt-get update' (as root) fetches."
dpkg-deb -x "$work/$package"_*.deb "$work/tree"
mkdir -p "$(dirname "$folder")"
mv "$work/tree/usr/share/doc/$package/copyright" "$work/tree/usr/share/datasets/fashion-mnist"
mv "$work/tree/usr/share/datasets/fashion-mnist" "$folder"
echo "$folder: $(ls "$folder" | wc -l) files"

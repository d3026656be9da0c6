#!/bin/sh
# Gather what EasyTPP's AttNHP needs beside torch and numpy, as plain Python, for a machine without a network.
#
# In: the site-packages folder of an environment that has easy_tpp (and with it omegaconf and PyYAML).
# Out: carry/easytpp in this repository, to be put on PYTHONPATH; compiled extensions are left out (PyYAML falls
# back to its Python code), and so is everything that only EasyTPP's command line and data loaders import.
#
#   benchmarks/rival_carry.sh SITE_PACKAGES
set -eu

if [ $# -ne 1 ] || [ ! -f "$1/easy_tpp/__init__.py" ]; then
    echo "usage: $0 SITE_PACKAGES   (a site-packages folder that holds easy_tpp)" >&2
    exit 2
fi
source=$(cd "$1" && pwd)
root=$(cd "$(dirname "$0")/.." && pwd)
target="$root/carry/easytpp"

rm -rf "$target"
mkdir -p "$target"

for package in easy_tpp omegaconf yaml; do
    if [ ! -d "$source/$package" ]; then
        echo "$source: no package $package; install easy_tpp there with its requirements" >&2
        exit 1
    fi
    cp -R "$source/$package" "$target/"
done
# The version and the licences travel with the code.
for info in "$source"/easy_tpp-*.dist-info "$source"/omegaconf-*.dist-info "$source"/[Pp][Yy][Yy][Aa][Mm][Ll]-*.dist-info; do
    [ -d "$info" ] && cp -R "$info" "$target/"
done
find "$target" -type d -name __pycache__ -prune -exec rm -rf {} +
find "$target" -type f \( -name '*.so' -o -name '*.pyd' -o -name '*.pyc' \) -exec rm -f {} +

kilobytes=$(du -sk "$target" | cut -f1)
if [ "$kilobytes" -gt 10240 ]; then
    echo "carry/easytpp: $kilobytes KiB, expected at most 10240" >&2
    exit 1
fi
echo "carry/easytpp: $kilobytes KiB"

#!/bin/sh
# Makes a release of the commit that is tagged as this version, in release/: the sources, the
# package that npx starts, the list of their packages (CycloneDX), the chart, and their checksums.
# From anywhere in the repository, after `npm ci`:
#
#   deploy/release.sh                          # the files
#   IMAGE=registry.example.com/gateway deploy/release.sh    # and the image, which it pushes
#
# Signs with cosign, by the identity or the key that cosign is set up with; without cosign nothing
# is signed, and no image is pushed.
set -eu
cd "$(dirname "$0")/.."

fail() {
  echo "release: $1" >&2
  exit 1
}
has() { command -v "$1" >/dev/null 2>&1; }

version=$(node -p 'require("./package.json").version')
[ -z "$(git status --porcelain)" ] || fail "commit first: there are changes"
[ "$(git rev-parse HEAD)" = "$(git rev-parse --verify --quiet "refs/tags/v$version^{commit}")" ] ||
  fail "this commit is not tagged v$version"
for name in version appVersion; do
  grep -qx "$name: $version" deploy/chart/Chart.yaml || fail "Chart.yaml has another $name"
done
if [ -n "${IMAGE:-}" ]; then
  has docker || fail "docker is missing"
  has cosign || fail "cosign is missing: an image that is not signed is not pushed"
fi

rm -rf release
mkdir release
name=model-gateway-$version
git archive --format=tar.gz --prefix="$name/" -o "release/$name.tar.gz" HEAD
npm pack --silent --pack-destination release >/dev/null
node deploy/list-packages.mjs >"release/$name.cdx.json"
# A chart is an archive of its folder.
git archive --format=tar.gz --prefix=model-gateway/ -o "release/$name-chart.tgz" HEAD:deploy/chart
(cd release && sha256sum -- * >SHA256SUMS)
if has cosign; then cosign sign-blob --yes --bundle release/SHA256SUMS.bundle release/SHA256SUMS; fi

if [ -n "${IMAGE:-}" ]; then
  # The bases by digest, as `NAME=IMAGE@sha256:…`: what is signed can be built again.
  sed -n 's/^ARG \([A-Z]*_BASE\)=\(.*\)$/\1 \2/p' deploy/Containerfile |
    while read -r name base; do
      digest=$(docker buildx imagetools inspect --format '{{.Manifest.Digest}}' "$base")
      case $digest in
        sha256:*) echo "$name=${base%:*}@$digest" ;;
        *) fail "$base has no digest" ;;
      esac
    done >release/bases.txt
  set --
  while read -r base; do set -- "$@" --build-arg "$base"; done <release/bases.txt
  # The list of packages and the provenance are attached to the image itself.
  docker buildx build --platform linux/amd64,linux/arm64 --sbom=true --provenance=true \
    --metadata-file release/image.json -f deploy/Containerfile "$@" --push -t "$IMAGE:$version" .
  digest=$(node -p 'require("./release/image.json")["containerimage.digest"]')
  cosign sign --yes "$IMAGE@$digest"
fi
echo "The release is in release/"

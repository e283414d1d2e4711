# Makes $notes/image-$round.tar as `docker save` would, with one layer of a file of noise, and that file's digest beside.
# shellcheck shell=dash disable=SC2154 # the test sets them
mkdir -p /tmp/image && cd /tmp/image || exit 1
head -c 12000000 /dev/urandom >"big-$round"
sha256sum "big-$round" | cut -d ' ' -f 1 >"$notes/image-$round.sum"
tar cf layer.tar "big-$round"
layer=$(sha256sum layer.tar | cut -d ' ' -f 1)
cat >config.json <<END
{"architecture": "$architecture", "os": "linux", "config": {}, "rootfs": {"type": "layers", "diff_ids": ["sha256:$layer"]}}
END
cat >manifest.json <<END
[{"Config": "config.json", "RepoTags": ["localhost/image-$round:1"], "Layers": ["layer.tar"]}]
END
tar cf "$notes/image-$round.tar" manifest.json config.json layer.tar
cd / && rm -rf /tmp/image

"""Undo, in the text of mmcv-lite's files, the few changes since mmcv 1.7.2 that show.

Each edit leaves the lines where they are, so that tracebacks show the right ones.
"""

from __future__ import annotations

__all__ = ["EDITS", "edited"]

EDITS: dict[str, tuple[tuple[str, str], ...]] = {
    "mmcv.cnn.bricks.conv_module": (
        # modules pickled by mmcv 1.x do not have the attribute
        (
            "    _abbr_ = 'conv_block'",
            "    _abbr_, efficient_conv_bn_eval_forward = 'conv_block', None",
        ),
    ),
    "mmcv.cnn.bricks.transformer": (
        ("                 layer_scale_init_value=0.):", "                 **kwargs):"),
        (
            "        self.num_fcs = num_fcs\n\n        layers = []",
            "        self.num_fcs = num_fcs\n        self.act_cfg = act_cfg\n"
            "        layers, self.activate = [], build_activation_layer(act_cfg)",
        ),
        (
            "                    build_activation_layer(act_cfg), nn.Dropout(ffn_drop)",
            "                    self.activate, nn.Dropout(ffn_drop)",
        ),
        (
            "        if layer_scale_init_value > 0:\n"
            "            self.gamma2 = LayerScale(embed_dims, scale=layer_scale_init_value)\n"
            "        else:\n"
            "            self.gamma2 = nn.Identity()\n",
            "\n\n\n\n",
        ),
        ("        out = self.gamma2(out)\n", "\n"),
    ),
    "mmcv.cnn.rfsearch.search": (
        (
            "def after_train_iter(self, runner, batch_idx, data_batch, outputs):",
            "def after_train_iter(self, runner):",
        ),
    ),
    "mmcv.image.io": (
        # file_client_args is what 1.x has, without a warning
        (
            "    if file_client_args is not None:\n        warnings.warn(",
            "    if None not in (file_client_args, backend_args):\n        warnings.warn(",
        ),
    ),
}


def edited(module: str, source: str) -> str:
    """Return a file's text as of mmcv 1.7.2.

    Args:
        module: The module's name.
        source: The text of mmcv-lite's file.

    Raises:
        ImportError: if the text is not that of the release that the edits are for.
    """
    for old, new in EDITS[module]:
        if old not in source:
            raise ImportError(f"{module}: mmcv-lite's file is not as released, it lacks {old!r}")
        source = source.replace(old, new)
    return source

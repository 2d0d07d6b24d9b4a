"""mmcv's own classes of hooks where ours differ from them."""

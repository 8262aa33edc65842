"""COBalD and TARDIS: their configurations in, our pipelines, sites and pools out.

`document` reads YAML, `names` and `foreign` resolve classes, `build` makes pipelines, `ours` adds
pools of hubs, `tardis` and `carry` convert TARDIS sites. Only allowed modules are imported.
"""

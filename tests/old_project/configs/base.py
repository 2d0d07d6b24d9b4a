_base_ = ["./_base_/runtime.py", "./_base_/schedule.py"]
custom_imports = dict(imports=["plugins.hooks"], allow_failed_imports=False)
model = dict(type="Net", width=4, head=dict(type="Head", classes=4))
data = dict(samples=18, batch=4)
here = "{{ fileDirname }}"
name = "{{ fileBasenameNoExtension }}"

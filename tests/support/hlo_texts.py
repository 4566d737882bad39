"""Texts of HLO modules, as PyTorch/XLA and as JAX print them."""

import base64
import json

CONFIG = {"func_name": "nki_tensor_add", "grid": [2, 2], "constants": {"note": "a, b) {"}}
ENCODED = base64.b64encode(json.dumps(CONFIG, sort_keys=True).encode()).decode()

# In torch_xla's style: percent signs, and the shape of every operand.
TORCH_STYLE = f"""\
HloModule IrToHlo.7, entry_computation_layout={{(f32[256,1024]{{1,0}}, f32[256,1024]{{1,0}})->(f32[256,1024]{{1,0}})}}

ENTRY %IrToHlo.7 (p0.1: f32[256,1024], p1.2: f32[256,1024]) -> (f32[256,1024]) {{
  %p1.2 = f32[256,1024]{{1,0}} parameter(1)
  %p0.1 = f32[256,1024]{{1,0}} parameter(0)
  %multiply.4 = f32[256,1024]{{1,0}} multiply(f32[256,1024]{{1,0}} %p1.2, f32[256,1024]{{1,0}} %p0.1)
  %custom-call.3 = f32[256,1024]{{1,0}} custom-call(f32[256,1024]{{1,0}} %p1.2, f32[256,1024]{{1,0}} %p0.1), custom_call_target="AwsNeuronCustomNativeKernel", api_version=API_VERSION_UNSPECIFIED, backend_config="{ENCODED}"
  %multiply.5 = f32[256,1024]{{1,0}} multiply(f32[256,1024]{{1,0}} %multiply.4, f32[256,1024]{{1,0}} %custom-call.3)
  ROOT %tuple.6 = (f32[256,1024]{{1,0}}) tuple(f32[256,1024]{{1,0}} %multiply.5)
}}
"""  # noqa: E501

# In the style of a module that JAX compiled for eight devices, with a bit of everything.
COMPILED_STYLE = """\
HloModule jit_step, is_scheduled=true, num_partitions=8, frontend_attributes={mesh="a, {b}"}

FileNames
1 "/somewhere/step.py"

StackFrames
1 {file_location_id=1 parent_frame_id=1}

%region_0.12 (x.1: bf16[], y.1: bf16[]) -> bf16[] {
  %x.1 = bf16[] parameter(0)
  %y.1 = bf16[] parameter(1)
  ROOT %add.9 = bf16[] add(%x.1, %y.1), metadata={op_name="jit(step)/sum" source_file="/somewhere/step.py" source_line=4}
}

%fused_computation (param_0: bf16[16,128]) -> bf16[16,128] {
  %param_0 = bf16[16,128]{1,0:T(8,128)(2,1)S(1)} parameter(0)
  ROOT %tanh.1 = bf16[16,128]{1,0} tanh(%param_0)
}, execution_thread="main"

ENTRY %main.20_spmd (param.3: bf16[16,128], param.4: (s32[], pred[<=5])) -> (bf16[128,128], bf16[]) {
  %param.3 = bf16[16,128]{1,0} parameter(0), sharding={devices=[8,1]<=[8]}, metadata={op_name="state[\\'w\\']"}
  %param.4 = (s32[], pred[<=5]{0}) parameter(1)
  %constant.5 = s32[2,2]{1,0} constant({
    { 1, 2 },
    { 3, 4 }
  })
  %constant.6 = bf16[] constant(-inf)
  %fusion = bf16[16,128]{1,0} fusion(%param.3), kind=kLoop, calls=%fused_computation, backend_config={"outer_dimension_partitions":["2"]}
  %all-gather-start.1 = (bf16[16,128]{1,0}, bf16[128,128]{1,0}) all-gather-start(%fusion), channel_id=1, replica_groups=[1,8]<=[8], dimensions={0}, use_global_device_ids=true
  %all-gather-done.1 = bf16[128,128]{1,0} all-gather-done(%all-gather-start.1)
  %reduce.2 = bf16[] reduce(%all-gather-done.1, %constant.6), dimensions={0,1}, to_apply=%region_0.12
  %all-reduce.7 = bf16[] all-reduce(%reduce.2), channel_id=2, replica_groups={{0,1,2,3},{4,5,6,7}}, to_apply=%region_0.12
  ROOT %tuple.9 = (bf16[128,128]{1,0}, /*index=1*/bf16[]) tuple(%all-gather-done.1, /*index=1*/%all-reduce.7)
}
"""  # noqa: E501

"""Errors carry the names that AWS's error reference (nki.errors, SDK 2.26) gives them."""

from __future__ import annotations

import re
from pathlib import Path

import nkisim

NAMES = """
1d_arange_not_supported activation_bias_invalid_type activation_scale_invalid_type
activation_scale_scalar_or_vector ambiguous_tensor_truth_value annotation_shape_mismatch
bias_tensor_must_be_specified_in_allocation cannot_assign_to_index
cannot_update_immutable_parameter control_flow_condition_depending_on_arange
copy_dynamic_indirect_indices_not_natively_supported dynamic_control_flow_not_supported
exceed_max_supported_dimension failed_to_infer_tile_from_local_tensor
hbm_tensor_with_init_value_not_supported indirect_indices_are_not_supported_with_nki_api
indirect_indices_free_dim leading_dimension_of_tensor_must_be_partition
local_variable_used_out_of_scope mutable_parameter_not_returned nested_kernel_with_spmd_grid
nki_api_outside_of_nki_kernel num_partition_exceed_arch_limit num_partition_mismatch
shared_hbm_must_in_kernel_level size_of_dimension_exceed_arch_limit
store_dst_shape_smaller_than_other_shape tensor_access_out_of_bound
tensor_creation_on_scratchpad_with_init_value_not_supported tensor_output_not_written_to
transpose_on_tensor_engine_not_allowed_in_allocated_kernel unexpected_output_dependencies
unsupported_expression_in_mask unsupported_memory
unsupported_mixing_basic_advanced_tensor_indexing while_loop_requires_unconditional_entry
"""
DOCUMENTED = {f"err_{name}" for name in NAMES.split()}


def used() -> dict[str, str]:
    package = Path(nkisim.__file__).parent
    return {
        code: str(path.relative_to(package))
        for path in package.rglob("*.py")
        for code in re.findall(r'"(err_\w+)"', path.read_text())
    }


def test_every_code_is_a_documented_one():
    unknown = {code: where for code, where in used().items() if code not in DOCUMENTED}
    assert not unknown


def test_most_documented_errors_are_raised_somewhere():
    assert len(used()) >= 20

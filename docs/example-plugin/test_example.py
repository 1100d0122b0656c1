"""How a plugin is tested: without a machine, with the contract that every check keeps."""

from infer_doctor_example import Swap, swap_on

from infer_doctor.testing import contract


def test_contract() -> None:
    contract(swap_on, fires=[Swap(rows=("/dev/sda2 partition 8388604 0 -2",))], passes=[Swap(rows=())])

"""Tests that scripts/named_tests.py maps a name to programs, GoogleTest filters and build targets."""
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import named_tests  # noqa: E402

FILES = {
    "core/pattern_test.cpp": "TEST(Pattern, Matches) {}\nTEST(Pattern, Refuses) {}\n",
    "core/node_test.cpp": "TEST(Node,\n     ReadsNumbers) {}\n// TEST(Node, IsAComment) {}\n",
    "plugins/ddp/order_test.cpp": "TEST_F(DdpOrder, IsThatOfGradients) {}\nTEST(Pattern, OfBuckets) {}\n",
    "plugins/ddp/training_test.cpp":
        "TEST_P(Ddp, EqualsSingle) {}\nTEST_P(Ddp, Resumes) {}\n"
        "HEDDLE_WITH_ALL(\n    \"*Ddp.Resumes\"\n    \"*:Pattern.Slow*\");\n"
        "INSTANTIATE_TEST_SUITE_P(Sizes, Ddp, Values(\"two_ranks\"));\nINSTANTIATE_TEST_SUITE_P(, Ddp, values);\n",
    "plugins/typed_test.cpp": "TYPED_TEST(Typed, Holds) {}\n",
    "messages/recipes_test.cpp": "TEST_P(Message, IsPrinted) {}\nINSTANTIATE_TEST_SUITE_P(Of, Message, values);\n",
    "messages/recipes/sizes.test": "ranks 2\n\n=== A size of 3\ntp_size: 3\nerror[mesh] 3\n\n=== No ranks\nranks 0\naccepted\n",
}
PROGRAMS = {"core_tests": ("core/pattern_test.cpp", "core/node_test.cpp", "messages/recipes_test.cpp"),
            "plugin_tests": ("plugins/ddp/order_test.cpp", "plugins/ddp/training_test.cpp", "plugins/typed_test.cpp")}


class NamedTests(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tests = pathlib.Path(folder.name)
        lines = ["test rules_size ", "test rules_names ", "test kills heddle_kills;heddle_plugins"]
        for program, files in PROGRAMS.items():
            lines.append(f"program {program} CUDA_VISIBLE_DEVICES=;GTEST_BRIEF=1")
            lines += [f"source {program} {path}" for path in (*(self.tests / file for file in files), "/lib/part.cpp")]
        for name, text in FILES.items():
            path = self.tests / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            if path.suffix == ".cpp":
                lines.append(f"seen {path}")
        self.index = named_tests.Index("\n".join(lines))

    def select(self, *names):
        return named_tests.select(names, self.index, self.tests)

    def test_a_suite_is_one_pattern(self):
        self.assertEqual(self.select("Node"), ({"core_tests": ["Node.*"]}, []))

    def test_a_case_is_found_by_its_name(self):
        self.assertEqual(self.select("Refuses"), ({"core_tests": ["Pattern.Refuses"]}, []))
        self.assertEqual(self.select("Pattern.M"), ({"core_tests": ["Pattern.Matches"]}, []))

    def test_a_suite_in_two_programs_runs_in_both(self):
        self.assertEqual(self.select("Pattern")[0], {"core_tests": ["Pattern.*"], "plugin_tests": ["Pattern.*"]})

    def test_a_parameterized_suite_has_a_pattern_for_each_instantiation(self):
        self.assertEqual(self.select("Ddp.")[0], {"plugin_tests": ["Sizes/Ddp.*", "Ddp.*"]})
        self.assertEqual(self.select("Sizes/Ddp.Resumes")[0], {"plugin_tests": ["Sizes/Ddp.Resumes/*"]})

    def test_a_parameter_is_found_if_no_case_has_the_name(self):
        self.assertEqual(self.select("two_r")[0], {"plugin_tests": ["Sizes/Ddp.*/two_r*", "Ddp.*/two_r*"]})

    def test_a_typed_case_matches_every_type(self):
        self.assertEqual(self.select("Holds")[0], {"plugin_tests": ["Typed/*.*"]})

    def test_a_record_is_found_by_its_file_and_by_its_title(self):
        records = ["Of/Message.IsPrinted/sizes_A_size_of_3*", "Of/Message.IsPrinted/sizes_No_ranks*"]
        self.assertEqual(self.select("sizes.test")[0], {"core_tests": records})
        self.assertEqual(self.select("messages/recipes/sizes")[0], {"core_tests": records})
        self.assertEqual(self.select("A size of")[0], {"core_tests": records[:1]})
        self.assertEqual(self.select("messages/")[0], {"core_tests": ["Of/Message.*"]})

    def test_a_path_names_its_cases(self):
        wanted = {"plugin_tests": ["DdpOrder.*", "Pattern.*"]}
        for name in ("plugins/ddp/order_test.cpp", "ddp/order", "tests/plugins/ddp/order_test.cpp", "./tests/plugins/ddp/order"):
            self.assertEqual(self.select(name)[0], wanted, name)
        self.assertEqual(self.select("plugins/ddp/"), self.select("plugins/ddp"))

    def test_folders_run_without_the_cases_of_all(self):
        def filters(*names):
            return named_tests.skip_slow(self.select(*names)[0], names, self.index, self.tests)
        self.assertEqual(filters("tests/plugins/ddp/"),
                         {"plugin_tests": ["DdpOrder.*", "Pattern.*", "Sizes/Ddp.*", "Ddp.*-*Ddp.Resumes*:Pattern.Slow*"]})
        self.assertEqual(filters("core"), self.select("core")[0])
        for names in (["plugins/ddp/training_test.cpp"], ["Ddp."], ["plugins/ddp", "Resumes"]):
            self.assertEqual(filters(*names), self.select(*names)[0], names)

    def test_names_are_joined(self):
        self.assertEqual(self.select("Node", "Matches")[0], {"core_tests": ["Pattern.Matches", "Node.*"]})

    def test_tests_of_ctest_are_found_with_their_targets(self):
        self.assertEqual(self.select("rules"), ({}, ["rules_names", "rules_size"]))
        programs, ctest = self.select("kills", "Node")
        self.assertEqual(named_tests.targets_of(programs, ctest, self.index), ["core_tests", "heddle_kills", "heddle_plugins"])

    def test_a_name_without_a_test_is_refused_with_the_nearest(self):
        for name, nearest in (("order_tset.cpp", None), ("ddporder", "DdpOrder"), ("Patern", "Pattern"), ("rules_sise", "rules_size")):
            with self.assertRaises(LookupError) as raised:
                self.select("Node", name)
            text, names = raised.exception.args
            self.assertEqual(text, f"no test contains '{name}'")
            if nearest:
                self.assertEqual(names[0], nearest)

    def test_an_environment_is_read(self):
        self.assertEqual(self.index.environment["core_tests"], {"CUDA_VISIBLE_DEVICES": "", "GTEST_BRIEF": "1"})


if __name__ == "__main__":
    unittest.main()

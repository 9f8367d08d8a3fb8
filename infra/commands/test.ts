import { resolveRuleNames } from "../catalogue/rule-names.ts";
import { type Command, commonCommandOptions, type ParsedOptions, writeJson, writeOutput } from "../cli/command.ts";
import { Complaint } from "../cli/complaint.ts";
import { getConfigFile } from "../cli/roots.ts";
import { sanitizeTerminalText, toOneLine } from "../cli/terminal.ts";
import { chooseCluster } from "../config/config.ts";
import type { PolicyRemarks } from "../policies/policy-tests.ts";
import { readConfig, reportBroken } from "../project/project.ts";
import { readAllRules, requireConfig } from "../project/project-rules.ts";
import { formatJunit, formatTestResult, formatTestSummary, type TestResult, toExitCode } from "../testing/results.ts";

export default {
  summary:
    "Runs the cases of rules, and the tests that hold for every rule. With --policy, runs the cases of policies.",
  usage: "[RULE…]",
  optionsInPlaceOfWords: ["policy", "cases"],
  options: {
    policy: {
      type: "string",
      multiple: true,
      value: "FILE",
      says: "test the policies in these files or folders instead of rules: ValidatingAdmissionPolicies, MutatingAdmissionPolicies and policies of kinitiras, with bindings and parameters",
    },
    cases: { type: "string", multiple: true, value: "FILE", says: "the files with the test cases of the policies" },
    config: {
      ...commonCommandOptions.config,
      says: "the postern.yaml of the project whose rules are tested (default: the nearest one); with --policy, the one with the settings of the rules that evaluate policies (default: their default settings)",
    },
    cluster: { ...commonCommandOptions.cluster, says: "with --policy: the cluster whose config is used" },
    output: { ...commonCommandOptions.output, value: "json|junit", says: "print JSON, or XML in the format of JUnit" },
  },

  async run({ options, words }) {
    const [policies, cases] = [options.texts("policy"), options.texts("cases")];
    if (policies.length + cases.length > 0) {
      if (policies.length === 0 || cases.length === 0 || words.length > 0)
        throw new Complaint(
          "name rules, or files of policies and of their cases: postern test RULE…, or postern test --policy FILE --cases FILE",
        );
      return testPolicies(policies, cases, options);
    }
    if (options.text("cluster") !== undefined)
      throw new Complaint("--cluster can only be used with --policy: tests of rules don't use it");
    if (words.length === 0) requireConfig();
    const rules = await readAllRules();
    const chosen = resolveRuleNames(words, rules.names);
    const { runTests } = await import("../testing/runs.ts");
    return reportResults(runTests(rules, chosen), options, "test");
  },
} satisfies Command;

/** Prints results as they arrive, then remarks and a summary that counts each `noun`. Returns the exit code. */
const reportResults = async (
  runCases: AsyncIterable<TestResult>,
  options: ParsedOptions,
  noun: "test" | "case",
  listRemarks?: () => PolicyRemarks,
): Promise<number> => {
  const output = options.text("output");
  const all: TestResult[] = [];
  let rule: string | undefined;
  for await (const test of runCases) {
    all.push(test);
    if (output !== undefined) continue;
    if (test.rule !== rule)
      writeOutput(`${all.length > 1 ? "\n" : ""}${sanitizeTerminalText(test.rule ?? test.file)}\n`);
    rule = test.rule;
    writeOutput(formatTestResult(test));
  }
  const { warnings, untested } = listRemarks?.() ?? { warnings: [], untested: [] };
  const remarks = [
    ...warnings,
    ...untested.map(({ file, line, policy, sentence }) => `${file}:${line} ${policy}: ${sentence}`),
  ];
  if (output === "json") writeJson({ cases: all, ...(listRemarks && { warnings, untested }) });
  else if (output === "junit") writeOutput(formatJunit(all, { notes: remarks }));
  else {
    const lines = remarks.map((line) => `- ${toOneLine(line)}\n`);
    writeOutput(`${lines.length > 0 ? `\nWhat to look at:\n${lines.join("")}` : ""}\n${formatTestSummary(all, noun)}`);
  }
  return toExitCode(all);
};

/** Returns the single failed result of a policy with faults. Its cases can't be run. */
const toFailedResult = ({ policy, faults }: { policy: string; faults: string[] }): TestResult => {
  return { file: policy, name: "has no faults", result: "failed", because: faults };
};

/** Runs the cases of policies. Sends no requests, because a case states everything that its policy reads. */
const testPolicies = async (policyFiles: string[], caseFiles: string[], options: ParsedOptions): Promise<number> => {
  const [{ explainPolicyManifests, readPolicyManifests, formatExplanation }, { openPolicyTests }, { evaluateCue }] =
    await Promise.all([
      import("../policies/explanation.ts"),
      import("../policies/policy-tests.ts"),
      import("#lib/cue/engine.ts"),
    ]);
  const output = options.text("output");
  const manifests = await readPolicyManifests(policyFiles, caseFiles);
  const faulty = (await explainPolicyManifests(manifests, (source) => evaluateCue(source))).filter(
    ({ faults }) => faults.length > 0,
  );
  if (faulty.length > 0) {
    const faults = faulty.map((policy) => ({ ...policy, does: [], warnings: [] }));
    if (output === "json") writeJson({ policies: faulty.map(({ policy, faults }) => ({ policy, faults })) });
    else if (output === "junit") writeOutput(formatJunit(faulty.map(toFailedResult)));
    else writeOutput(faults.map(formatExplanation).join("\n"));
    return 1;
  }
  const { catalogue, broken, names } = await readAllRules();
  reportBroken(broken, () => false); // Prints why rules can't be loaded. No rule counts as needed, so the tests go on.
  const [config, cluster] = [options.text("config"), options.text("cluster")];
  const setups =
    config === undefined && cluster === undefined
      ? undefined
      : chooseCluster(await readConfig(getConfigFile(), catalogue, names), cluster)[1].rules;
  const { runCases, listRemarks } = await openPolicyTests(manifests, caseFiles, catalogue, setups);
  return reportResults(runCases(), options, "case", listRemarks);
};

import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import project from "../../../package.json" with { type: "json" };

import { readRows } from "../../../test/rows.ts";
import { sanitizeTerminalText } from "../../cli/terminal.ts";

import type { ObjectCheckResult, ObjectEvaluation } from "../evaluation/object-evaluation.ts";
import {
  type CheckReportWriter,
  type CheckResultReportWriter,
  type FinishedCheck,
  toRepositoryPath,
} from "./check-report.ts";
import { createPainter, createTextReport, createWholeTextReport, formatUnread } from "./format.ts";
import { createGithubReport } from "./github.ts";
import { createJsonReport } from "./json-report.ts";
import { createJunitReport } from "./junit.ts";
import { computeFingerprint, hasNewDenial, leaveOutKnownFindings } from "./known-findings.ts";
import { createPolicyReport, findPolicyReportVersion } from "./policyreport.ts";
import { createSarifReport } from "./sarif.ts";

// In a workflow, the variable may name another checkout than that of this test.
delete process.env.GITHUB_WORKSPACE;
const now = new Date("2026-11-22T01:02:03.456Z");
const { results, hostile, ...reports } = readRows<{
  results: Record<"web" | "denied" | "undecided" | "changed" | "clusterScoped" | "exempt", ObjectCheckResult>;
  hostile: string[];
  github: string;
  junit: string;
  sarif: object;
  text: string;
}>(import.meta.filename);
const { web, denied, undecided: undecidedResult, changed, clusterScoped } = results;
const all = [denied, undecidedResult, changed, clusterScoped];

const finished: FinishedCheck = {
  summary: { objects: 4, allowed: 0, changed: 0, denied: 0, undecided: 0, noRule: 0, warnings: 0, faults: 0 },
  unreadableInputs: [],
  notes: [],
  wasInterrupted: false,
};

const uncoloured = createPainter(false);
/** Returns the text that a report writes for results. */
const writeReport = (
  report: CheckResultReportWriter,
  all: readonly ObjectCheckResult[],
  last: FinishedCheck = finished,
): string => [...all.map((checked) => report.add({ checked })), ...report.end(last)].join("");

/** Lets a test add results to a report that needs whole evaluations: each result gets an evaluation without a trace. */
const toResultWriter = (report: CheckReportWriter): CheckResultReportWriter => {
  const nothing = { audit: {}, steps: [], before: {}, after: {} };
  const subject = {} as ObjectEvaluation["subject"];
  return { ...report, add: ({ checked }) => report.add({ ...nothing, subject, checked }) };
};

/** Returns the end of a check that could not read some objects. */
const withUnread = (all: readonly ObjectCheckResult[]): FinishedCheck => {
  return { ...finished, unreadableInputs: all.map((checked) => ({ fault: {}, text: "", checked })) };
};

const text = fc.oneof(fc.constantFrom(...hostile), fc.string({ unit: "binary" }));
const anyResult: fc.Arbitrary<ObjectCheckResult> = fc
  .record(
    {
      file: text,
      line: fc.nat().map((line) => line + 1),
      apiVersion: text,
      kind: text,
      namespace: text,
      name: text,
      denials: fc.array(
        fc.record({ rule: text, message: text, suggestion: text }, { requiredKeys: ["rule", "message"] }),
      ),
      warnings: fc.array(fc.record({ rule: text, text })),
      undecided: fc.array(text),
      passed: fc.array(text),
    },
    { requiredKeys: ["apiVersion", "kind", "name", "denials", "warnings", "undecided", "passed"] },
  )
  .map((one): ObjectCheckResult => ({ ...one, verdict: "denied", changes: [], assumed: [] }));
const anyResults = fc.array(anyResult, { maxLength: 4 });

describe("the text report", () => {
  it("the text report has only findings, grouped by kind, with denials first", () => {
    const pods = ["a", "b", "c", "d", "e", "f", "g"].map((name, index): ObjectCheckResult => {
      // The names of some Pods end with what the API server adds to a generateName.
      const podName = index > 4 ? `${name}x7d4k` : name;
      const denial = { rule: "pod-names", message: `pods "${podName}" is forbidden`, line: index + 2 };
      const undecided = index % 2 === 0 ? [] : ["which quota counts it"];
      return { ...denied, name, line: index + 1, denials: [denial], warnings: [], undecided };
    });
    const report = toResultWriter(createTextReport(uncoloured));
    assert.equal(writeReport(report, [undecidedResult, web, results.exempt, ...pods, denied]), reports.text);
  });
});

describe("a report without known findings", () => {
  const [{ rule, message = "" } = { rule: "" }] = denied.denials;
  const warning = { rule: "pod-security", text: "would violate restricted" };
  const suggested = `${message}\nTo fix it, name an image of registry.example.com`;
  const denialId = computeFingerprint(denied, rule, suggested);
  const warningId = computeFingerprint(denied, warning.rule, warning.text);
  const write = (all: readonly ObjectCheckResult[], known: string[]) => {
    const report = toResultWriter(createTextReport(uncoloured));
    const left = leaveOutKnownFindings(report as CheckReportWriter, new Set(known));
    return writeReport(toResultWriter(left), all);
  };

  it("a report without known findings lists new denials, new warnings and undecided objects", () => {
    assert.match(
      write(all, []),
      /denied by allowed-registries[\s\S]*warning of pod-security[\s\S]*Pod shop\/db .*undecided/,
    );
    assert.doesNotMatch(write(all, [denialId]), /denied by/);
    assert.match(write(all, [denialId]), /^Pod shop\/web .* denied\n {2}warning of pod-security/);
    assert.doesNotMatch(write(all, [warningId]), /warning of/);
    assert.match(write(all, [denialId, warningId]), /^Pod shop\/db .*undecided\n.*\n4 objects\n$/);
  });
  it("a denial is new if it has another rule, object or sentence than the known denials", () => {
    const known = new Set([denialId]);
    assert.equal(hasNewDenial(denied, known), false);
    const others = [{ namespace: "till" }, { name: "db" }, { kind: "PodTemplate" }, { apiVersion: "v2" }];
    for (const change of others) assert.equal(hasNewDenial({ ...denied, ...change }, known), true);
    const [denial] = denied.denials;
    for (const change of [{ rule: "pod-security" }, { message: "another" }, { suggestion: "another" }])
      assert.equal(hasNewDenial({ ...denied, denials: [{ ...denial, rule, message, ...change }] }, known), true);
    assert.equal(hasNewDenial({ ...denied, denials: [...denied.denials, { rule, message: "another" }] }, known), true);
  });
});

describe("what can't be read", () => {
  it("unreadable inputs with the same fault are listed only in part, unless all are wanted", () => {
    const unreadableInputs = ["a", "b", "c", "d", "e"].map((file) => {
      const sentence = file === "b" ? "is no text in UTF-8" : "is a Helm template";
      return { fault: { file, line: 1, sentence }, text: `${file}:1 ${sentence}`, checked: undecidedResult };
    });
    const texts = unreadableInputs.map(({ text }) => text);
    assert.deepEqual(formatUnread(unreadableInputs, true).sort(), texts);
    const [a, b, c, d] = texts;
    assert.deepEqual(formatUnread(unreadableInputs, false), [a, c, d, "… and 1 more like these; --all lists them", b]);
  });
});

describe("the report for GitHub", () => {
  it("the report for GitHub has a command for each denial, warning and undecided object, with its line", () =>
    assert.equal(writeReport(createGithubReport(), all), reports.github));
  it("the report for GitHub has no control characters but line breaks in the texts that the runner decodes", () => {
    const message = "\u001b[31mred\u0000\r\nsecond\rline\u202e";
    const commands = writeReport(createGithubReport(), [
      { ...denied, name: message, denials: [{ rule: "r\u001b", message }] },
    ]);
    assert.doesNotMatch(commands.replaceAll("\n", ""), /\p{Cc}|\p{Bidi_Control}/u);
    assert.match(commands, /::\?\[31mred\?%0Asecond\?line\?\n/);
    assert.doesNotMatch(commands, /%0D/);
  });
  it("the report for GitHub keeps every text as the runner decodes it", () =>
    fc.assert(
      fc.property(anyResults, (all) => {
        const lines = writeReport(createGithubReport(), all).split(/\r?\n/).slice(0, -1);
        const wanted = all.flatMap(({ denials, warnings, undecided }) => [
          ...denials.map(({ message, suggestion }) => [
            "error",
            suggestion === undefined ? message : `${message}\nTo fix it, ${suggestion}`,
          ]),
          ...warnings.map(({ text }) => ["warning", text]),
          ...undecided.map((sentence) => ["warning", sentence]),
        ]);
        const read = lines.map((line) => /^::(error|warning) ([^:]*)::([\s\S]*)$/.exec(line) ?? []);
        assert.deepEqual(
          read.map(([, command, , message = ""]) => [command, decodeMessage(message)]),
          wanted.map(([command = "", message = ""]) => [
            command,
            message.split(/\r?\n/).map(sanitizeTerminalText).join("\n"),
          ]),
        );
        for (const [, , properties = ""] of read)
          for (const property of properties.split(",")) assert.match(property, /^(file|line|col|title)=/);
      }),
    ));
});

/** Decodes a message as the runner of GitHub does. */
const decodeMessage = (text: string) => text.replaceAll("%0A", "\n").replaceAll("%25", "%");

describe("the result for a Pod that a controller would create from a workload", () => {
  const deployment = { apiVersion: "apps/v1", kind: "Deployment", name: "web", uid: "u1" };
  const { file: _, line: __, ...deniedLive } = denied;
  const podOfDeployment: ObjectCheckResult = { ...deniedLive, name: "web-", madeBy: deployment };
  it("the result for a Pod of a workload has the workload's name in every report", () => {
    assert.match(
      writeReport(createGithubReport(), [podOfDeployment]),
      /^::error title=allowed-registries%3A Deployment shop\/web \(its Pods\)::/,
    );
    const junit = writeReport(createJunitReport(now), [podOfDeployment]);
    assert.match(junit, /<testsuite name="apps\/v1 Deployment"/);
    assert.match(junit, /<testcase classname="Deployment shop\/web \(its Pods\)" name="allowed-registries"/);
    const sarif = writeReport(createSarifReport(), [podOfDeployment]);
    assert.match(sarif, /"uri": "cluster\/apps\/v1\/Deployment\/shop\/web"/);
    const [report] = JSON.parse(writeReport(createPolicyReport({ listsPasses: true }, now), [podOfDeployment])).items;
    assert.deepEqual(report.results[0].resources, [{ ...deployment, namespace: "shop" }]);
  });
});

describe("the JUnit report", () => {
  it("the JUnit report has a suite for each file, and a test for each rule that evaluated an object", () =>
    assert.equal(writeReport(createJunitReport(now), all), reports.junit));
  it("the JUnit report gives each test its own name, because some viewers show only the first test of a name", () => {
    const undecidedWeb = { ...web, undecided: ["who may", "what is there"] };
    const text = writeReport(createJunitReport(now), [
      denied,
      { ...denied, file: "prod/web.yaml", line: 7 },
      undecidedWeb,
    ]);
    const tests = [...text.matchAll(/<testcase classname="([^"]*)" name="([^"]*)"/g)].map(([, object, name]) =>
      [object, name].join(" "),
    );
    assert.deepEqual(new Set(tests).size, tests.length, tests.join("\n"));
    assert.ok(tests.includes("Pod shop/web allowed-registries at prod/web.yaml:7"), tests.join("\n"));
    assert.match(text, /<error message="who may, and 1 more" type="Undecided">who may&#10;what is there<\/error>/);
  });
  it("the JUnit report lists an object that no rule matches", () =>
    assert.match(
      writeReport(createJunitReport(), [web]),
      /<testcase classname="Pod shop\/web" name="postern check" time="0"><\/testcase>/,
    ));
  it("the JUnit report writes several suites for a file with too many tests, each with its own counts", () => {
    const text = writeReport(
      createJunitReport(now, /* maxCharacters */ 1000),
      Array.from({ length: 50 }, () => denied),
    );
    const counts = [...text.matchAll(/<testsuite name="k8s\/web.yaml" id="(\d+)" .*? tests="(\d+)" failures="(\d+)"/g)];
    assert.ok(counts.length > 5);
    assert.deepEqual(
      counts.map(([, id]) => Number(id)),
      counts.map((_, index) => index),
    );
    assert.equal(
      counts.reduce((sum, [, , tests]) => sum + Number(tests), 0),
      [...text.matchAll(/<testcase /g)].length,
    );
  });
  it("the JUnit report is well-formed with any text", () =>
    fc.assert(
      fc.property(anyResults, (all) => {
        const text = writeReport(createJunitReport(now), all);
        const withoutAllowedControls = text.replace(/[\t\n\u007f-\u009f]/g, "");
        assert.doesNotMatch(withoutAllowedControls, /[\p{Cc}\ufffe\uffff]/u);
        assert.equal(text, text.toWellFormed());
        assert.doesNotMatch(text, /&(?!(amp|lt|gt|quot|#\d+);)/);
        // The text without quoted values has no other tags, and closes each opened tag.
        const tags = [...text.replace(/"[^"<]*"/g, "").matchAll(/<(\/?)([^\s>?]+)[^>]*>/g)];
        const names = [
          "testsuites",
          "testsuite",
          "properties",
          "testcase",
          "failure",
          "error",
          "system-out",
          "system-err",
        ];
        const stack: string[] = [];
        for (const [, closing, name = ""] of tags) {
          assert.ok(names.includes(name), name);
          if (closing) assert.equal(stack.pop(), name);
          else stack.push(name);
        }
        assert.deepEqual(stack, []);
      }),
    ));
});

describe("each report", () => {
  const reportsByName: [name: string, create: () => CheckResultReportWriter, lineStart: RegExp][] = [
    ["text", () => toResultWriter(createTextReport(uncoloured)), /^(?!\s*::)/],
    ["text of all objects", () => toResultWriter(createWholeTextReport(uncoloured)), /^(?!\s*::)/],
    ["json", () => toResultWriter(createJsonReport()), /^ *["{}[\]]/],
    ["junit", () => createJunitReport(now), /^ *</],
    ["sarif", () => createSarifReport(), /^ *["{}[\]]/],
    ["github", () => createGithubReport(), /^::(error|warning) /],
    ["policyreport", () => createPolicyReport({ listsPasses: true }, now), /^ *["{}[\]]/],
  ];
  for (const [name, create, lineStart] of reportsByName)
    it(`in the format ${name} has only lines of this format, without a control character or a workflow command`, () =>
      fc.assert(
        fc.property(anyResults, fc.array(text), (all, names) => {
          const named = names.map((name): ObjectCheckResult => ({ ...denied, file: name, kind: name, name }));
          const lines = writeReport(create(), [...all, ...named])
            .split("\n")
            .slice(0, -1);
          for (const line of lines) {
            assert.match(line, lineStart);
            assert.doesNotMatch(line, /\p{Cc}|\p{Bidi_Control}|[\u2028\u2029]|##\w*\[/u);
          }
        }),
      ));
});

describe("the SARIF report", () => {
  const parseRun = (all: ObjectCheckResult[], last = finished) =>
    JSON.parse(writeReport(createSarifReport([{ name: "allowed-registries", summary: "Only some." }]), all, last))
      .runs[0];

  it("the SARIF report has a result for each denial and warning, with its rule and position", () => {
    const { tool, results } = parseRun(all);
    assert.deepEqual(tool.driver, {
      name: "Postern",
      semanticVersion: project.version,
      rules: [{ id: "allowed-registries", shortDescription: { text: "Only some." } }, { id: "pod-security" }],
    });
    const [{ partialFingerprints: _, ...first }, second] = results;
    assert.deepEqual(first, reports.sarif);
    assert.equal(second.level, "warning");
    assert.equal(second.locations[0].physicalLocation.region.startLine, 3);
  });
  it("the SARIF report has a notification of the run for an undecided object, without a file if there is none", () =>
    assert.deepEqual(parseRun(all).invocations[0].toolExecutionNotifications, [
      {
        level: "warning",
        message: { text: "Pod shop/db: the condition of priority can't be evaluated" },
        locations: [{ logicalLocations: [{ fullyQualifiedName: "Pod shop/db", kind: "object" }] }],
      },
    ]));
  it("the SARIF report has a file for each result, as GitHub requires, even for an object without a file", () => {
    const listUris = (one: ObjectCheckResult) =>
      parseRun([one]).results.map(
        ({ locations }: { locations: { physicalLocation: { artifactLocation: { uri: string } } }[] }) =>
          locations[0]?.physicalLocation.artifactLocation.uri,
      );
    const { file: _, line: __, ...live } = denied;
    // Each object has a result for its denial, and a result for its warning.
    assert.deepEqual(listUris({ ...denied, file: "-" }), ["stdin", "stdin"]);
    assert.deepEqual(listUris(live), ["cluster/v1/Pod/shop/web", "cluster/v1/Pod/shop/web"]);
  });
  it("the SARIF report states that the check ended early, and lists read failures", () => {
    const [{ executionSuccessful, toolExecutionNotifications }] = parseRun([], {
      ...withUnread([undecidedResult]),
      wasInterrupted: true,
    }).invocations;
    assert.equal(executionSuccessful, false);
    assert.equal(toolExecutionNotifications.length, 1);
  });
  it("the SARIF report has fingerprints that don't depend on the line", () => {
    const getFingerprints = (line: number) => parseRun([{ ...denied, line }]).results[0].partialFingerprints;
    assert.deepEqual(getFingerprints(1), getFingerprints(2));
  });
  it("the SARIF report has the same fingerprints for objects of one controller", () => {
    const getFingerprints = (name: string, owner?: string) =>
      parseRun([{ ...denied, name, ...(owner !== undefined && { owner }) }]).results[0].partialFingerprints;
    assert.deepEqual(getFingerprints("web-7d9f-a", "ReplicaSet web"), getFingerprints("web-7d9f-b", "ReplicaSet web"));
    assert.notDeepEqual(getFingerprints("web", "ReplicaSet web"), getFingerprints("web", "ReplicaSet shop"));
    assert.notDeepEqual(getFingerprints("a"), getFingerprints("b"));
  });
  it("the SARIF report escapes links in messages", () => {
    const [{ message }] = parseRun([{ ...denied, denials: [{ rule: "a", message: "[here](http://evil)" }] }]).results;
    assert.equal(message.text, "\\[here\\](http://evil)");
  });
  it("the SARIF report escapes many brackets fast", () => {
    const message = "[".repeat(500_000);
    const [{ message: escaped }] = parseRun([{ ...denied, denials: [{ rule: "a", message }] }]).results;
    assert.equal(escaped.text, message);
  });
  it("the SARIF report has valid URIs and the index of a listed rule in each result, for any texts", () =>
    fc.assert(
      fc.property(anyResults, (all) => {
        const { tool, results } = parseRun(all);
        for (const { ruleId, ruleIndex, locations } of results) {
          assert.equal(tool.driver.rules[ruleIndex].id, ruleId);
          const { uri } = locations[0].physicalLocation.artifactLocation;
          assert.doesNotThrow(() => new URL(uri, "file:///checkout/"), uri);
        }
      }),
    ));
});

describe("the PolicyReports", () => {
  const parseItems = (all: ObjectCheckResult[]) =>
    JSON.parse(writeReport(createPolicyReport({ listsPasses: true }, now), all)).items;

  it("there is one PolicyReport for each namespace, and one for cluster-scoped objects", () => {
    const found = parseItems(all);
    assert.deepEqual(
      found.map(({ kind, metadata, summary }: Record<string, { namespace?: string }>) => [
        kind,
        metadata?.namespace,
        summary,
      ]),
      [
        ["PolicyReport", "shop", { pass: 3, fail: 1, warn: 1, error: 1, skip: 0 }],
        ["ClusterPolicyReport", undefined, { pass: 1, fail: 0, warn: 0, error: 0, skip: 0 }],
      ],
    );
    assert.deepEqual(found[0].results[0], {
      source: "postern",
      policy: "allowed-registries",
      result: "fail",
      message: "containers[0].image is from docker.io\nTo fix it, name an image of registry.example.com",
      resources: [{ apiVersion: "v1", kind: "Pod", namespace: "shop", name: "web" }],
      timestamp: { seconds: 1795309323, nanos: 0 },
    });
  });
  it("the PolicyReports are of openreports.io if this version is chosen, with the same members", () => {
    const options = { listsPasses: true, apiVersion: "openreports.io/v1alpha1" } as const;
    const [found, others] = [createPolicyReport(options, now), createPolicyReport({ listsPasses: true }, now)].map(
      (report): Record<string, unknown>[] => JSON.parse(writeReport(report, all)).items,
    );
    assert.deepEqual(
      found?.map(({ apiVersion, kind }) => [apiVersion, kind]),
      [
        ["openreports.io/v1alpha1", "Report"],
        ["openreports.io/v1alpha1", "ClusterReport"],
      ],
    );
    const omitVersions = (reports = found) => reports?.map(({ apiVersion: _, kind: __, ...rest }) => rest);
    assert.deepEqual(omitVersions(), omitVersions(others));
  });
  const serving: [name: string, groups: string[], version: string | undefined][] = [
    ["the only group that a cluster serves", ["wgpolicyk8s.io/v1alpha2"], "wgpolicyk8s.io/v1alpha2"],
    ["the newer of two groups", ["wgpolicyk8s.io/v1alpha2", "openreports.io/v1alpha1"], "openreports.io/v1alpha1"],
    ["no group if a cluster serves other versions", ["wgpolicyk8s.io/v1alpha1", "openreports.io/v1"], undefined],
  ];
  for (const [name, apiVersions, version] of serving)
    it(`are of ${name}`, () => {
      const served = apiVersions.flatMap((apiVersion) => {
        const [group = "", version = ""] = apiVersion.split("/");
        const words = ["PolicyReport", "ClusterPolicyReport", "Report", "ClusterReport"];
        return words.map((kind) => ({ kind: { group, version, kind } }));
      });
      assert.equal(findPolicyReportVersion(served), version);
    });
  it("no version of PolicyReports is chosen if a cluster serves only one kind of the group", () =>
    assert.equal(
      findPolicyReportVersion([{ kind: { group: "openreports.io", version: "v1alpha1", kind: "Report" } }]),
      undefined,
    ));
  it("a PolicyReport that would be too large for kubectl is split into reports with different names", () => {
    const many = parseItems(Array.from({ length: 3000 }, () => denied));
    assert.ok(many.length > 3);
    assert.equal(new Set(many.map(({ metadata }: { metadata: { name: string } }) => metadata.name)).size, many.length);
    for (const one of many) assert.ok(JSON.stringify(one).length < 256 * 1024);
  });
  it("the PolicyReports truncate long messages", () => {
    const message = "x".repeat(400_000);
    const [one, ...more] = parseItems([{ ...denied, kind: message, name: message, denials: [{ rule: "a", message }] }]);
    assert.deepEqual([one.metadata.name, more], ["postern", []]);
    assert.ok(JSON.stringify(one).length < 64_000);
    assert.match(one.results[0].message, /^x{4000,}…$/);
  });
  it("PolicyReports count results that passed unchanged, but don't list them, if a cluster stores reports", () => {
    const [report] = JSON.parse(
      writeReport(createPolicyReport({ listsPasses: false }, now), [denied, changed, web]),
    ).items;
    assert.equal(report.summary.pass, 3);
    assert.deepEqual(
      report.results.map(({ result, message }: Record<string, unknown>) => [result, message]),
      [
        ["fail", "containers[0].image is from docker.io\nTo fix it, name an image of registry.example.com"],
        ["warn", "would violate restricted"],
        ["pass", "would change it"],
        ["pass", "would change it"],
      ],
    );
  });
  it("a PolicyReport has the result skip for a rule from which an exception exempts the object", () => {
    const [report] = JSON.parse(writeReport(createPolicyReport({ listsPasses: false }, now), [results.exempt])).items;
    const [{ policy, result, message }] = report.results;
    assert.deepEqual(
      [report.summary.skip, policy, result, message],
      [1, "pod-security", "skip", "exempt until 2027-01-31 (team-billing): OPS-231"],
    );
  });
  it("the PolicyReports are written early if too many results wait, and lose none", () => {
    const many = Array.from({ length: 300 }, (_, index) => ({
      ...denied,
      namespace: `n${index % 20}`,
      name: `p${index}`,
    }));
    const reports = JSON.parse(
      writeReport(createPolicyReport({ listsPasses: false, maxBytes: 5000 }, now), many),
    ).items;
    const names = reports.map(
      ({ metadata }: Record<string, Record<string, string>>) => `${metadata?.namespace}/${metadata?.name}`,
    );
    assert.equal(new Set(names).size, names.length);
    const listedNames = reports.flatMap(
      ({ results }: { results: { result: string; resources: { name: string }[] }[] }) =>
        results.flatMap(({ result, resources }) => (result === "fail" ? resources.map(({ name }) => name) : [])),
    );
    assert.deepEqual(listedNames.toSorted(), many.map(({ name }) => name).toSorted());
    const counted = reports.reduce((sum: number, { summary }: { summary: { pass: number } }) => sum + summary.pass, 0);
    assert.equal(counted, 300);
  });
  it("the PolicyReports exist for a namespace without findings, to replace older reports", () =>
    assert.deepEqual(
      JSON.parse(writeReport(createPolicyReport({ listsPasses: false }, now), [{ ...web, passed: ["a"] }])).items.map(
        ({ metadata, summary, results }: Record<string, Record<string, unknown>>) => [
          metadata?.name,
          summary?.pass,
          results,
        ],
      ),
      [["postern", 1, []]],
    ));
});

describe("a file's path in reports", () => {
  it("paths begin at the checkout", () => assert.equal(toRepositoryPath("k8s/./a.yaml", process.cwd()), "k8s/a.yaml"));
  it("a file's path in reports is unchanged outside of the checkout", () =>
    assert.equal(toRepositoryPath("/elsewhere/a.yaml", "/checkout"), "/elsewhere/a.yaml"));
  it("a file's path in reports may begin with two dots in the checkout", () =>
    assert.equal(toRepositoryPath("/checkout/..data/a.yaml", "/checkout"), "..data/a.yaml"));
  it("a file's path in reports is undefined for standard input", () => assert.equal(toRepositoryPath("-"), undefined));
});

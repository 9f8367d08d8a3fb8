import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";
import { parse } from "yaml";
import { readCatalogue } from "../../infra/catalogue/registry.ts";
import {
  type ComparableServerAnswer,
  comparePluginAndPortAnswers,
  formatAnswerDiff,
  type ParityComparisonResult,
  toComparable,
} from "./compare.ts";
import { listRulesThatReplacePlugins } from "./plugins.ts";

const answer = (code: number, body: object, warnings: string[] = [], audit = {}): ComparableServerAnswer => {
  const call = { method: "GET", path: "/", user: "admin" } as const;
  return toComparable({ call, answer: { code, body: { ...body }, warnings }, audit, name: "s0" }, "s0");
};
/** Upstream's and the rule's answer to a request. An earlier answer of the rule may explain why they differ. */
type AnswerPair = [
  wanted: ComparableServerAnswer,
  actual: ComparableServerAnswer,
  earlierActual?: readonly ComparableServerAnswer[],
];
type Row = [verdict: ParityComparisonResult["verdict"], ...pair: AnswerPair];
/** Verifies the verdicts of comparisons: in each row a verdict, upstream's answer and the rule's answer. */
const verify = (rows: Row[], rule = "some-rule", minor = "1.36") => {
  for (const [index, [verdict, wanted, actual, earlierActual]] of rows.entries())
    assert.equal(
      comparePluginAndPortAnswers({ rule, minor }, wanted, actual, { ...(earlierActual && { earlierActual }) }).verdict,
      verdict,
      `row ${index}: ${formatAnswerDiff(wanted, actual)}`,
    );
};
/** Verifies that the pairs `known` differ in a way that is known only for this rule, and `unknown` in no known way. */
const verifyKnown = (rule: string, known: AnswerPair[], unknown: AnswerPair[], minor?: string) => {
  const rows = [...known.map((pair): Row => ["known", ...pair]), ...unknown.map((pair): Row => ["different", ...pair])];
  verify(rows, rule, minor);
  verify(known.map((pair): Row => ["different", ...pair]));
};
const buildRefusal = (...faults: string[]) =>
  answer(403, { message: `pods "s0" is forbidden: [${faults.join(", ")}]` });
const buildStatus = (code: number, message: string) =>
  answer(code, { message, ...(code === 403 && { reason: "Forbidden" }) });

/** Pairs of answers in compare-answers.yaml, by the verdict of the comparison. */
interface Sample {
  name: string;
  rule?: string;
  minor?: string;
  /** True if the pairs are compared for each rule that reimplements a plugin, and not only for `rule`. */
  everyPort?: true;
  equal?: Pair[];
  known?: Pair[];
  different?: Pair[];
}
type StatedAnswer = { code: number; body: object; warnings?: string[]; audit?: Record<string, string> };
/** `earlierOurs` is the rule's answer to an earlier request, which explains some differences. */
type Pair = Record<"upstream" | "ours", StatedAnswer> & { earlierOurs?: StatedAnswer };

const samples: Sample[] = parse(readFileSync(new URL("compare-answers.yaml", import.meta.url), "utf8"));
const ports = listRulesThatReplacePlugins(await readCatalogue()).map(({ name }) => name);

describe("a comparison", () => {
  for (const { name, rule = "some-rule", minor, everyPort, equal = [], known = [], different = [] } of samples)
    it(`a comparison ${name}`, () => {
      const toPairs = (pairs: Pair[]) =>
        pairs.map(
          ({ upstream, ours, earlierOurs }): AnswerPair => [
            answer(upstream.code, upstream.body, upstream.warnings, upstream.audit),
            answer(ours.code, ours.body, ours.warnings, ours.audit),
            earlierOurs && [answer(earlierOurs.code, earlierOurs.body)],
          ],
        );
      for (const one of everyPort ? ports : [rule])
        verify(
          toPairs(equal).map((pair): Row => ["equal", ...pair]),
          one,
        );
      for (const one of everyPort ? ports : [rule]) verifyKnown(one, toPairs(known), toPairs(different), minor);
    });

  it("a comparison accepts another policy's denial or failure if the rule has upstream's answer, too", () => {
    const deny = (policy: string, code = 422, audit = {}) => answer(code, { message: `${policy} denied` }, [], audit);
    // The rule's webhook entries for the policies a and b deny the request.
    const verdict = (wanted: ComparableServerAnswer, actual: ComparableServerAnswer, minor = "1.36") =>
      comparePluginAndPortAnswers({ rule: "validating-admission-policy", minor }, wanted, actual, {
        denials: [deny("a"), deny("b", 403)],
      }).verdict;
    assert.equal(verdict(deny("a"), deny("b", 403)), "equal");
    assert.equal(verdict(deny("b", 403), deny("a")), "equal");
    assert.equal(verdict(deny("b"), deny("a")), "different");
    assert.equal(verdict(deny("c"), deny("a")), "different");
    assert.equal(verdict(deny("a"), deny("c")), "different");
    assert.equal(verdict(answer(201, {}), deny("a")), "different");
    const failed = (...policies: string[]) =>
      answer(201, {}, [], {
        ...Object.fromEntries(
          policies.map((policy) => [`${policy}/validation_failure`, JSON.stringify([{ policy, message: "no" }])]),
        ),
      });
    assert.equal(verdict(failed("b"), failed("a", "b")), "equal");
    assert.equal(verdict(failed("c"), failed("a", "b")), "different");
    assert.equal(verdict(failed(), failed("a", "b")), "different");
    assert.equal(verdict(failed("a", "b"), failed("b")), "different");
    // From Kubernetes 1.37 on, upstream's audit annotation has the failures of all policies.
    assert.equal(verdict(failed("b"), failed("a", "b"), "1.37"), "different");
    assert.equal(verdict(failed("b", "a"), failed("a", "b"), "1.37"), "equal");
  });

  it("a comparison ignores the order of the policies that warn, but not of one policy's warnings", () => {
    const warn = (...texts: string[]) =>
      answer(
        201,
        {},
        texts.map((text) => `Validation failed for ValidatingAdmissionPolicy '${text[0]}' with binding 'b': ${text}`),
      );
    verify([
      ["equal", warn("a1", "b1", "b2"), warn("b1", "b2", "a1")],
      ["different", warn("a1", "b1", "b2"), warn("b2", "b1", "a1")],
      ["different", warn("a1", "b1"), warn("a1")],
    ]);
  });

  it("a comparison ignores the order of neighbouring faults of a LimitRange's bound, but no other order", () => {
    const cpu = "maximum cpu usage per Container is 2, but limit is 8";
    const memory = "maximum memory usage per Container is 2Gi, but limit is 8Gi";
    const minimum = "minimum cpu usage per Container is 1.  No request is specified";
    const podLimit = "maximum cpu usage per Pod is 3, but limit is 9";
    const ratio = "cpu max limit to request ratio per Container is 2, but no limit is specified or limit is 0";
    const differentFaults = [
      [cpu],
      [cpu, minimum, memory],
      [podLimit, cpu, memory],
      [ratio, cpu, memory],
      [cpu, cpu.replace("8", "9")],
    ];
    verify([
      [
        "equal",
        ...([
          [cpu, memory],
          [memory, cpu],
        ].map((faults) => buildRefusal(minimum, ...faults, ratio, podLimit)) as AnswerPair),
      ],
      ...differentFaults.map((faults): Row => ["different", buildRefusal(cpu, memory), buildRefusal(...faults)]),
      ["different", buildRefusal(cpu, podLimit), buildRefusal(podLimit, cpu)],
      ["different", buildRefusal(minimum, cpu), buildRefusal(cpu, minimum)],
    ]);
  });

  const claims = "other than status.quantity and status.conditions:";
  const request = 'PodCertificateRequest for pod "a/b"';
  const unparsable = "the PEM block holds no PKCS #10 certificate request in DER";
  const differs = `${request} contains pod UID ("0") which differs from running pod`;
  const inconsistent = `${request} names node UID "0", inconsistent with the running node`;
  const refusalsOfKubelets: [code: number, upstream: string, ours: string][] = [
    [403, "node n1 UID mismatch: expected 0 got ?", "node n1 UID mismatch: expected 0 got another"],
    [403, `${claims} @@ -3 +4\n b`, `${claims} metadata.labels`],
    [403, "unable to parse csr: asn1: syntax error", `unable to parse csr: ${unparsable}`],
    [500, `${differs} "?"`, differs],
    [500, `${inconsistent} ("?")`, inconsistent],
  ];
  for (const [code, upstreamText, ruleText] of refusalsOfKubelets)
    it(`a comparison accepts a rule's refusal of a kubelet by "${ruleText}", and upstream's by another text`, () => {
      const upstreamMessage = `pods "s0" is forbidden: ${upstreamText}`;
      const ruleMessage = `pods "s0" is forbidden: ${ruleText}`;
      const upstream = buildStatus(code, upstreamMessage);
      verifyKnown(
        "node-restriction",
        [[upstream, buildStatus(403, ruleMessage)]],
        [
          [upstream, buildStatus(403, `${ruleMessage}!`.replace("pods", "nodes"))],
          [buildStatus(201, upstreamMessage), buildStatus(403, ruleMessage)],
          [upstream, buildStatus(201, ruleMessage)],
          [upstream, { ...buildStatus(403, ruleMessage), warnings: ["c"] }],
        ],
      );
    });

  it("a comparison accepts diffs in messages of API validation that differ only in empty values", () => {
    // The old text has 20 lines from l1 to l20, but Env instead of l5, and Image instead of l15.
    const oldLines = Array.from({ length: 20 }, (_, index) => `l${index + 1}`)
      .with(4, '"Env": null,')
      .with(14, '"Image": "a",');
    /**
     * Builds a hunk with the old lines from `start` to `end`. These lines replace the old line with the number
     * `changed`.
     */
    const buildHunk = (start: number, end: number, changed: number, ...added: string[]) =>
      [
        `@@ -${start},${end - start + 1} +${start},${end - start + added.length} @@`,
        ...oldLines.slice(start - 1, changed - 1).map((line) => ` ${line}`),
        `-${oldLines[changed - 1]}`,
        ...added.map((line) => `+${line}`),
        ...oldLines.slice(changed, end).map((line) => ` ${line}`),
        "",
      ].join("\n");
    const buildInvalid = (...hunks: string[]) =>
      answer(422, { message: `Pod is invalid: spec: Forbidden: may not change\n${hunks.join("")}` });
    const image = buildHunk(12, 18, 15, '"Image": "b",');
    const emptied = buildInvalid(buildHunk(2, 8, 5, '"Env": [],'), image);
    verifyKnown(
      "always-pull-images",
      [[emptied, buildInvalid(image)]],
      [
        // Only upstream's message may show empty values.
        [buildInvalid(image), emptied],
        [emptied, buildInvalid(buildHunk(12, 18, 15, '"Image": "c",'))],
        [emptied, buildInvalid(buildHunk(12, 18, 15, '"Image": "b",', '"Policy": "Always",'))],
        [buildInvalid(buildHunk(2, 8, 5, '"Env": ["x"],'), image), buildInvalid(image)],
        [emptied, buildInvalid(buildHunk(2, 8, 6, "other"), image)],
        [emptied, answer(422, { message: "Pod is invalid: spec: Forbidden: may not change" })],
      ],
    );
  });

  it("a comparison is shown as a diff of the two answers, with equal lines only near a difference", () => {
    const body = { a: 1, b: 2, c: 3, d: 4, e: 5 };
    assert.equal(
      formatAnswerDiff(answer(200, body), answer(200, { ...body, e: 6 })),
      ['      "c": 3,', '      "d": 4,', '-     "e": 5', '+     "e": 6', "    },", '    "code": 200,'].join("\n"),
    );
  });
});

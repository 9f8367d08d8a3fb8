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
import { listPluginPorts } from "./plugins.ts";

const answer = (code: number, body: object, warnings: string[] = [], audit = {}): ComparableServerAnswer => {
  const call = { method: "GET", path: "/", user: "admin" } as const;
  return toComparable({ call, answer: { code, body: { ...body }, warnings }, audit, name: "s0" }, "s0");
};
type AnswerPair = [
  wanted: ComparableServerAnswer,
  actual: ComparableServerAnswer,
  earlier?: readonly ComparableServerAnswer[],
];
type Row = [verdict: ParityComparisonResult["verdict"], ...pair: AnswerPair];
const verify = (rows: Row[], rule = "some-rule", minor = "1.36") => {
  for (const [index, [verdict, wanted, actual, earlier]] of rows.entries())
    assert.equal(
      comparePluginAndPortAnswers({ rule, minor }, wanted, actual, { ...(earlier && { earlier }) }).verdict,
      verdict,
      `row ${index}: ${formatAnswerDiff(wanted, actual)}`,
    );
};
/** Verifies that a rule has a known difference, which no other rule has, and that the others are different. */
const verifyKnown = (rule: string, known: AnswerPair[], others: AnswerPair[], minor?: string) => {
  const rows = [...known.map((pair): Row => ["known", ...pair]), ...others.map((pair): Row => ["different", ...pair])];
  verify(rows, rule, minor);
  verify(known.map((pair): Row => ["different", ...pair]));
};
const buildRefusal = (...faults: string[]) =>
  answer(403, { message: `pods "s0" is forbidden: [${faults.join(", ")}]` });
const buildStatus = (code: number, message: string) =>
  answer(code, { message, ...(code === 403 && { reason: "Forbidden" }) });

interface Sample {
  name: string;
  rule?: string;
  minor?: string;
  everyPort?: true;
  equal?: Pair[];
  known?: Pair[];
  different?: Pair[];
}
type StatedAnswer = { code: number; body: object; warnings?: string[]; audit?: Record<string, string> };
/** `after` is what the rule's server answered before. */
type Pair = Record<"upstream" | "ours", StatedAnswer> & { after?: StatedAnswer };

const samples: Sample[] = parse(readFileSync(new URL("compare-answers.yaml", import.meta.url), "utf8"));
const ports = listPluginPorts(await readCatalogue()).map(({ name }) => name);

describe("a comparison", () => {
  for (const { name, rule = "some-rule", minor, everyPort, equal = [], known = [], different = [] } of samples)
    it(name, () => {
      const toPairs = (pairs: Pair[]) =>
        pairs.map(
          ({ upstream, ours, after }): AnswerPair => [
            answer(upstream.code, upstream.body, upstream.warnings, upstream.audit),
            answer(ours.code, ours.body, ours.warnings, ours.audit),
            after && [answer(after.code, after.body)],
          ],
        );
      for (const one of everyPort ? ports : [rule])
        verify(
          toPairs(equal).map((pair): Row => ["equal", ...pair]),
          one,
        );
      for (const one of everyPort ? ports : [rule]) verifyKnown(one, toPairs(known), toPairs(different), minor);
    });

  it("accepts any denial of a policy if upstream's is one of them, and the first failure of any policy", () => {
    const deny = (policy: string, code = 422, audit = {}) => answer(code, { message: `${policy} denied` }, [], audit);
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
    assert.equal(verdict(failed("b"), failed("a", "b"), "1.37"), "different");
    assert.equal(verdict(failed("b", "a"), failed("a", "b"), "1.37"), "equal");
  });

  it("ignores the order of warnings of several policies, but not of one", () => {
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

  it("ignores the order of a LimitRange's faults in one container, but not across containers, pods and bounds", () => {
    const cpu = "maximum cpu usage per Container is 2, but limit is 8";
    const memory = "maximum memory usage per Container is 2Gi, but limit is 8Gi";
    const least = "minimum cpu usage per Container is 1.  No request is specified";
    const podLimit = "maximum cpu usage per Pod is 3, but limit is 9";
    const ratio = "cpu max limit to request ratio per Container is 2, but no limit is specified or limit is 0";
    const others = [
      [cpu],
      [cpu, least, memory],
      [podLimit, cpu, memory],
      [ratio, cpu, memory],
      [cpu, cpu.replace("8", "9")],
    ];
    verify([
      ["equal", buildRefusal(least, cpu, memory, ratio, podLimit), buildRefusal(least, memory, cpu, ratio, podLimit)],
      ...others.map((faults): Row => ["different", buildRefusal(cpu, memory), buildRefusal(...faults)]),
      ["different", buildRefusal(cpu, podLimit), buildRefusal(podLimit, cpu)],
      ["different", buildRefusal(least, cpu), buildRefusal(cpu, least)],
    ]);
  });

  const claims = "other than status.quantity and status.conditions:";
  const request = 'PodCertificateRequest for pod "a/b"';
  const unread = "the PEM block holds no PKCS #10 certificate request in DER";
  const differs = `${request} contains pod UID ("0") which differs from running pod`;
  const inconsistent = `${request} names node UID "0", inconsistent with the running node`;
  const toKubelets: [code: number, upstream: string, ours: string][] = [
    [403, "node n1 UID mismatch: expected 0 got ?", "node n1 UID mismatch: expected 0 got another"],
    [403, `${claims} @@ -3 +4\n b`, `${claims} metadata.labels`],
    [403, "unable to parse csr: asn1: syntax error", `unable to parse csr: ${unread}`],
    [500, `${differs} "?"`, differs],
    [500, `${inconsistent} ("?")`, inconsistent],
  ];
  for (const [code, upstreamText, ours] of toKubelets)
    it(`accepts another text for a kubelet: ${ours}`, () => {
      const [there, here] = [upstreamText, ours].map((text) => `pods "s0" is forbidden: ${text}`) as [string, string];
      const upstream = buildStatus(code, there);
      verifyKnown(
        "node-restriction",
        [[upstream, buildStatus(403, here)]],
        [
          [upstream, buildStatus(403, `${here}!`.replace("pods", "nodes"))],
          [buildStatus(201, there), buildStatus(403, here)],
          [upstream, buildStatus(201, here)],
          [upstream, { ...buildStatus(403, here), warnings: ["c"] }],
        ],
      );
    });

  it("accepts diffs in messages of API validation that differ only in empty values", () => {
    // The old text has 20 lines from l1 to l20, but with Env as l5 and Image as l15.
    const old = Array.from(
      { length: 20 },
      (_, index) => ({ 4: '"Env": null,', 14: '"Image": "a",' })[index] ?? `l${index + 1}`,
    );
    const getLine = (number: number) => ` ${old[number - 1]}`;
    const buildHunk = (start: number, end: number, changed: number, ...added: string[]) =>
      [
        `@@ -${start},${end - start + 1} +${start},${end - start + added.length} @@`,
        ...Array.from({ length: changed - start }, (_, index) => getLine(start + index)),
        `-${old[changed - 1]}`,
        ...added.map((text) => `+${text}`),
        ...Array.from({ length: end - changed }, (_, index) => getLine(changed + 1 + index)),
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

  it("shows both sides, and equal lines only near a difference", () => {
    const body = { a: 1, b: 2, c: 3, d: 4, e: 5 };
    assert.equal(
      formatAnswerDiff(answer(200, body), answer(200, { ...body, e: 6 })),
      ['      "c": 3,', '      "d": 4,', '-     "e": 5', '+     "e": 6', "    },", '    "code": 200,'].join("\n"),
    );
  });
});

import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { readCatalogue } from "../catalogue/registry.ts";
import { type ComparableAnswer, type ComparisonResult, compareAnswers, formatDiff, toComparable } from "./compare.ts";
import { listPorts } from "./plugins.ts";

const answer = (code: number, body: object, warnings: string[] = []): ComparableAnswer =>
  toComparable(
    { call: { method: "GET", path: "/", user: "admin" }, answer: { code, body: { ...body }, warnings }, name: "s0" },
    "s0",
  );
type Row = [verdict: ComparisonResult["verdict"], wanted: ComparableAnswer, actual: ComparableAnswer];
const verify = (rows: Row[], rule = "some-rule") => {
  for (const [index, [verdict, wanted, actual]] of rows.entries())
    assert.equal(compareAnswers(rule, wanted, actual).verdict, verdict, `row ${index}: ${formatDiff(wanted, actual)}`);
};
/** Verifies that a rule has a known difference, which no other rule has, and that the others are different. */
const verifyKnown = (
  rule: string,
  known: [ComparableAnswer, ComparableAnswer][],
  others: [ComparableAnswer, ComparableAnswer][],
) => {
  verify([...known.map((pair): Row => ["known", ...pair]), ...others.map((pair): Row => ["different", ...pair])], rule);
  verify(known.map((pair): Row => ["different", ...pair]));
};
const refused = (...faults: string[]) => answer(403, { message: `pods "s0" is forbidden: [${faults.join(", ")}]` });
const stated = (code: number, message: string) =>
  answer(code, { message, ...(code === 403 && { reason: "Forbidden" }) });

describe("a comparison", () => {
  it("sees codes, warnings and what is said", async () => {
    const one = answer(403, { reason: "Forbidden", message: "a", details: { name: "b" } });
    const others = [
      { ...one, code: 422 },
      { ...one, warnings: ["c"] },
      answer(403, { reason: "Invalid", message: "a", details: { name: "b" } }),
      answer(403, { reason: "Forbidden", message: "b", details: { name: "b" } }),
      answer(403, { reason: "Forbidden", message: "a", details: { name: "c" } }),
      answer(403, { reason: "Forbidden", message: "a" }),
    ];
    verify([["equal", one, structuredClone(one)]]);
    for (const { name } of listPorts(await readCatalogue()))
      verify(
        others.map((other) => ["different", one, other]),
        name,
      );
  });

  it("sees that a server's own values are there, not which", () => {
    const one = answer(201, { metadata: { uid: "a", name: "s0" }, spec: { clusterIP: "10.0.0.1" } });
    verify([
      ["equal", one, answer(201, { metadata: { uid: "b", name: "s0" }, spec: { clusterIP: "10.0.0.2" } })],
      ["different", one, answer(201, { metadata: { name: "s0" }, spec: { clusterIP: "10.0.0.2" } })],
      ["different", one, answer(201, { metadata: { uid: "b", name: "s0" }, spec: { clusterIP: "None" } })],
      ["different", one, answer(201, { metadata: { uid: "b", name: "s1" }, spec: { clusterIP: "10.0.0.2" } })],
    ]);
  });

  it("minds no order of what API validation found, and misses nothing of it", () => {
    const invalid = (...found: string[]) =>
      answer(422, {
        reason: "Invalid",
        message: `Pod "s0" is invalid: [${found.map((field) => `${field}: Required value`).join(", ")}]`,
        details: { causes: found.map((field) => ({ reason: "FieldValueRequired", message: "Required value", field })) },
      });
    verify([
      ["equal", invalid("a", "b"), invalid("b", "a")],
      ["different", invalid("a", "b"), invalid("a", "c")],
      ["different", invalid("a", "b"), invalid("a", "b", "c")],
    ]);
  });

  it("minds no order of the managers that a field is in conflict with, nor of any other causes", () => {
    const conflict = (reason: string, ...managers: string[]) => {
      const causes = managers.map((manager) => ({ reason, message: manager }));
      return answer(409, { message: "conflicts", details: { causes } });
    };
    const [known, other] = ["FieldManagerConflict", "FieldValueInvalid"];
    verify([
      ["equal", conflict(known, "a", "b"), conflict(known, "b", "a")],
      ["different", conflict(known, "a", "b"), conflict(known, "a", "c")],
      ["different", conflict(known, "a", "b"), conflict(known, "a")],
      ["different", conflict(other, "a", "b"), conflict(other, "b", "a")],
    ]);
  });

  it("minds neither the order nor the times of managers, but what they own", () => {
    const managed = (...managers: [string, string][]) =>
      answer(200, {
        metadata: { managedFields: managers.map(([manager, time], index) => ({ manager, time, index: index && 0 })) },
      });
    const owning = (fieldsV1: object) => answer(200, { metadata: { managedFields: [{ manager: "a", fieldsV1 }] } });
    verify([
      ["equal", managed(["a", "1"], ["b", "2"]), managed(["b", "3"], ["a", "4"])],
      ["different", managed(["a", "1"], ["b", "2"]), managed(["a", "1"], ["c", "2"])],
      ["different", owning({ "f:spec": {} }), owning({ "f:status": {} })],
    ]);
  });

  it("minds no order of a list's items, but of any other list", () => {
    const items = (...names: string[]) => answer(200, { items: names.map((name) => ({ metadata: { name } })) });
    const containers = (...names: string[]) => answer(200, { spec: { containers: names.map((name) => ({ name })) } });
    verify([
      ["equal", items("a", "b"), items("b", "a")],
      ["different", items("a", "b"), items("a")],
      ["different", containers("a", "b"), containers("b", "a")],
    ]);
  });

  it("minds no order of what a strategic patch has twice", () => {
    const wrong = (...lines: string[]) => answer(400, { message: `wrong: errors:\n${lines.join("\n")}` });
    verify([
      ["equal", wrong("a", "b"), wrong("b", "a")],
      ["different", wrong("a", "b"), wrong("a", "c")],
    ]);
  });

  it("minds no order of what a LimitRange has against one container, but of containers, pods and bounds", () => {
    const cpu = "maximum cpu usage per Container is 2, but limit is 8";
    const memory = "maximum memory usage per Container is 2Gi, but limit is 8Gi";
    const least = "minimum cpu usage per Container is 1.  No request is specified";
    const whole = "maximum cpu usage per Pod is 3, but limit is 9";
    const ratio = "cpu max limit to request ratio per Container is 2, but no limit is specified or limit is 0";
    const others = [
      [cpu],
      [cpu, least, memory],
      [whole, cpu, memory],
      [ratio, cpu, memory],
      [cpu, cpu.replace("8", "9")],
    ];
    verify([
      ["equal", refused(least, cpu, memory, ratio, whole), refused(least, memory, cpu, ratio, whole)],
      ...others.map((faults): Row => ["different", refused(cpu, memory), refused(...faults)]),
      ["different", refused(cpu, whole), refused(whole, cpu)],
      ["different", refused(least, cpu), refused(cpu, least)],
    ]);
  });

  it("minds neither uids and times in texts, nor how the volume of a token is called", () => {
    const told = (uid: string, time: string, volume: string) =>
      answer(422, { message: `${uid} at ${time} in kube-api-access-${volume}` });
    const [uid, other] = ["0f0e0d0c-0000-4000-8000-000000000001", "0f0e0d0c-0000-4000-8000-000000000002"];
    const [time, later] = ["2026-01-02T03:04:05Z", "2026-01-02T03:04:06Z"];
    const one = told(uid, time, "bcdfg");
    verify([
      ["equal", one, told(other, later, "24567")],
      ["different", one, told(other, later, "mine")],
      ["different", one, told("uid", later, "24567")],
    ]);
  });

  it("knows what a rule can't read in an annotation by another text, and of no other rule", () => {
    const upstream = answer(500, { message: "invalid character 'o' in literal null (expecting 'u')" });
    const text = 'namespace "a" must have a JSON list of tolerations in its annotation example.com/tolerations';
    const ours = stated(403, text);
    verifyKnown(
      "pod-toleration-restriction",
      [[upstream, ours]],
      [
        [answer(500, { message: "broken" }), ours],
        [upstream, answer(403, { message: "broken" })],
        [upstream, answer(201, { message: text })],
      ],
    );
  });

  it("knows by other words why a backend's answer can't be taken, and nothing else that it says", () => {
    const forbidden = (text: string) => answer(403, { message: `pods "s0" is forbidden: ${text}` });
    const upstream = forbidden("the server could not find the requested resource");
    const ours = forbidden("the image policy webhook backend answers 404");
    const rejected = forbidden("one or more images rejected by webhook backend");
    verifyKnown(
      "image-policy-webhook",
      [[upstream, ours]],
      [
        [upstream, rejected],
        [rejected, ours],
        [upstream, answer(201, {})],
      ],
    );
  });

  const claims = "other than status.quantity and status.conditions:";
  const asked = 'PodCertificateRequest for pod "a/b"';
  const unread = "the PEM block holds no PKCS #10 certificate request in DER";
  const differs = `${asked} contains pod UID ("0") which differs from running pod`;
  const inconsistent = `${asked} names node UID "0", inconsistent with the running node`;
  const toKubelets: [code: number, upstream: string, ours: string][] = [
    [403, "node n1 UID mismatch: expected 0 got ?", "node n1 UID mismatch: expected 0 got another"],
    [403, `${claims} @@ -3 +4\n b`, `${claims} metadata.labels`],
    [403, "unable to parse csr: asn1: syntax error", `unable to parse csr: ${unread}`],
    [500, `${differs} "?"`, differs],
    [500, `${inconsistent} ("?")`, inconsistent],
  ];
  for (const [code, said, ours] of toKubelets)
    it(`knows what a kubelet isn't told or is told otherwise: ${ours}`, () => {
      const [there, here] = [said, ours].map((text) => `pods "s0" is forbidden: ${text}`) as [string, string];
      const upstream = stated(code, there);
      verifyKnown(
        "node-restriction",
        [[upstream, stated(403, here)]],
        [
          [upstream, stated(403, `${here}!`.replace("pods", "nodes"))],
          [stated(201, there), stated(403, here)],
          [upstream, stated(201, here)],
          [upstream, { ...stated(403, here), warnings: ["c"] }],
        ],
      );
    });

  it("knows that a namespace made for a request is managed by another, and otherwise the same", () => {
    const made = (manager: string, name = "s0") =>
      answer(200, { kind: "Namespace", metadata: { name, managedFields: [{ manager }] } });
    const upstream = made("kube-apiserver");
    verifyKnown(
      "namespace-auto-provision",
      [[upstream, made("postern")]],
      [
        [upstream, made("jane")],
        [upstream, made("postern", "other")],
        [upstream, answer(404, {})],
      ],
    );
  });

  it("knows that a missing namespace is named before the object is looked at, and nothing else of the answer", () => {
    const missing = answer(404, { reason: "NotFound", message: 'namespaces "shop" not found' });
    const warned = { ...missing, warnings: ["a"] };
    const invalid = answer(422, { reason: "Invalid", message: "name: Required value" }, ["a"]);
    verifyKnown(
      "namespace-exists",
      [
        [warned, missing],
        [invalid, missing],
      ],
      [
        [invalid, warned],
        [missing, invalid],
        [answer(201, {}), missing],
        [answer(500, { reason: "InternalError" }), missing],
        [invalid, answer(404, { reason: "NotFound", message: 'pods "shop" not found' })],
      ],
    );
  });

  it("knows that a bare 500 of one plugin is 403 here, and of no other", () => {
    const upstream = answer(500, { code: 500, message: "pods is forbidden" });
    const ours = answer(403, { code: 403, reason: "Forbidden", message: "pods is forbidden" });
    verifyKnown(
      "always-pull-images",
      [[upstream, ours]],
      [
        [ours, upstream],
        [upstream, answer(403, { reason: "Forbidden", message: "no" })],
        [upstream, answer(403, { reason: "Invalid", message: "pods is forbidden" })],
        [upstream, answer(422, { reason: "Forbidden", message: "pods is forbidden" })],
        [upstream, answer(403, { reason: "Forbidden", message: "pods is forbidden" }, ["a warning"])],
        [answer(500, { reason: "InternalError", message: "pods is forbidden" }), ours],
      ],
    );
  });

  it("knows that API validation shows what is empty as null here, and nothing else in its place", () => {
    const invalid = (text: string, code = 422) => answer(code, { reason: "Invalid", message: text });
    const shown = (value: string) => invalid(`spec.capacity: Unsupported value: ${value}: supported values: "storage"`);
    verifyKnown(
      "always-pull-images",
      [
        [shown("{}"), shown("null")],
        [shown("[]"), shown("null")],
      ],
      [
        [shown('{"a":1}'), shown("null")],
        [shown('""'), shown("null")],
        [invalid("value: {}", 400), invalid("value: null", 400)],
      ],
    );
  });

  it("knows that diffs in such messages may differ by what is empty, and lead to the same otherwise", () => {
    // The old text has 20 lines, l1 to l20, of which l5 is Env and l15 is Image.
    const old = Array.from(
      { length: 20 },
      (_, index) => ({ 4: '"Env": null,', 14: '"Image": "a",' })[index] ?? `l${index + 1}`,
    );
    const line = (number: number) => ` ${old[number - 1]}`;
    const hunk = (start: number, end: number, changed: number, ...added: string[]) =>
      [
        `@@ -${start},${end - start + 1} +${start},${end - start + added.length} @@`,
        ...Array.from({ length: changed - start }, (_, index) => line(start + index)),
        `-${old[changed - 1]}`,
        ...added.map((text) => `+${text}`),
        ...Array.from({ length: end - changed }, (_, index) => line(changed + 1 + index)),
        "",
      ].join("\n");
    const invalid = (...hunks: string[]) =>
      answer(422, { message: `Pod is invalid: spec: Forbidden: may not change\n${hunks.join("")}` });
    const image = hunk(12, 18, 15, '"Image": "b",');
    const emptied = invalid(hunk(2, 8, 5, '"Env": [],'), image);
    verifyKnown(
      "always-pull-images",
      [[emptied, invalid(image)]],
      [
        // It is upstream that shows what is empty.
        [invalid(image), emptied],
        [emptied, invalid(hunk(12, 18, 15, '"Image": "c",'))],
        [emptied, invalid(hunk(12, 18, 15, '"Image": "b",', '"Policy": "Always",'))],
        [invalid(hunk(2, 8, 5, '"Env": ["x"],'), image), invalid(image)],
        [emptied, invalid(hunk(2, 8, 6, "other"), image)],
        [emptied, answer(422, { message: "Pod is invalid: spec: Forbidden: may not change" })],
      ],
    );
  });

  const pod = (runtimeClassName: string | undefined, ...tolerations: object[]) =>
    answer(201, { kind: "Pod", spec: { ...(runtimeClassName && { runtimeClassName }), tolerations } });
  const [a, b] = [{ key: "a" }, { key: "b" }];

  it("knows that tolerations stand in another order where a RuntimeClass brings some, and nowhere else", () =>
    verifyKnown(
      "extended-resource-toleration",
      [[pod("c", a, b), pod("c", b, a)]],
      [
        [pod(undefined, a, b), pod(undefined, b, a)],
        [pod("c", a, b), pod("c", b)],
        [pod("c", a, b), pod("c", { ...b, tolerationSeconds: 5 }, a)],
        [pod("c", a, b), pod("d", b, a)],
      ],
    ));

  it("knows that a RuntimeClass drops what another toleration covers, and nothing else", () => {
    const [all, gpu] = [{ operator: "Exists" }, { key: "gpu", operator: "Exists", effect: "NoSchedule" }];
    verifyKnown(
      "extended-resource-toleration",
      [[pod("c", all), pod("c", all, gpu)]],
      [
        [pod(undefined, all), pod(undefined, all, gpu)],
        [pod("c", a), pod("c", a, gpu)],
        [pod("c", all, gpu), pod("c", all)],
      ],
    );
  });

  it("knows that what a RuntimeClass says of a lost node is not said again, and nothing else of it", () => {
    const lost = (runtimeClassName: string, tolerationSeconds: number, key = "node.kubernetes.io/not-ready") =>
      pod(runtimeClassName, { key, operator: "Exists", effect: "NoExecute", tolerationSeconds });
    verifyKnown(
      "default-toleration-seconds",
      [[lost("impatient", 300), lost("impatient", 30)]],
      [
        [lost("impatient", 30), lost("impatient", 300)],
        [lost("impatient", 300), lost("impatient", 31)],
        [lost("sandboxed", 300), lost("sandboxed", 30)],
        [lost("impatient", 300, "other"), lost("impatient", 30, "other")],
      ],
    );
  });

  it("shows both sides, and what they share only where they part", () => {
    const body = { a: 1, b: 2, c: 3, d: 4, e: 5 };
    assert.equal(
      formatDiff(answer(200, body), answer(200, { ...body, e: 6 })),
      ['      "c": 3,', '      "d": 4,', '-     "e": 5', '+     "e": 6', "    },", '    "code": 200,'].join("\n"),
    );
  });
});

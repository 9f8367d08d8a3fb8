import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { randomInt } from "node:crypto";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import fc from "fast-check";
import { listing } from "../../infra/catalogue/list.ts";
import { catalogueFolder, readCatalogue } from "../../infra/catalogue/registry.ts";
import { section, withSection } from "../../infra/commands/parity.ts";
import { comparable, compare, diffOf } from "../../infra/parity/compare.ts";
import { pluginsIn, requireBinaries } from "../../infra/parity/control-plane/binaries.ts";
import { sequencesFor } from "../../infra/parity/generator.ts";
import { type Parity, parityOf, portsAmong } from "../../infra/parity/parity.ts";
import { scenes } from "../../infra/parity/scenes.ts";
import { stages } from "../../infra/parity/stages.ts";
import { needs } from "../parts.ts";

// That ports answer as the plugins they are ports of, by requests that nobody thought of.
const binaries = await requireBinaries().catch(() => undefined);
const plugins = binaries && (await pluginsIn(binaries));

const apiserver = await needs("API server");
const catalogue = await readCatalogue();
const ports = portsAmong(catalogue);
const everything = [{ apiGroups: ["*"], apiVersions: ["*"], resources: ["*/*"], operations: ["*" as const] }];

describe("generated requests", () => {
  const sampled = (seed: number) => fc.sample(sequencesFor(everything), { seed, numRuns: 2000 });

  it("are the same for the same seed", () => {
    assert.deepEqual(sampled(7), sampled(7));
    assert.notDeepEqual(sampled(7), sampled(8));
  });

  it("are of every kind and verb, by every user", () => {
    const sequences = sampled(7);
    const steps = sequences.flatMap(({ steps }) => steps);
    assert.equal(new Set(sequences.map(({ kind }) => kind)).size, 13);
    assert.equal(new Set(steps.map(({ verb }) => verb)).size, 6);
    assert.equal(new Set(steps.map(({ user }) => user)).size, 3);
    assert.equal(new Set(steps.flatMap((step) => (step.verb === "patch" ? [step.type] : []))).size, 3);
    const subresources = steps.flatMap((step) => ("subresource" in step ? [step.subresource] : []));
    for (const one of ["status", "ephemeralcontainers", "binding", "eviction", "resize", "scale"])
      assert.ok(subresources.includes(one), one);
    const dry = new Set(steps.flatMap(({ verb, dryRun }) => (dryRun ? [verb] : [])));
    assert.equal(dry.size, 6);
    assert.ok(sequences.some(({ generateName }) => generateName));
  });

  it("have all that the rules look at, and much around it", () => {
    const fields = new Set<string>();
    JSON.stringify(sampled(7), (key, value) => {
      fields.add(key);
      return value;
    });
    const ofPods =
      "containers initContainers ephemeralContainers livenessProbe readinessProbe startupProbe lifecycle volumes image hostPath";
    const ofScheduling =
      "podAntiAffinity podAffinity nodeAffinity tolerations nodeName schedulingGates nodeSelector topologySpreadConstraints runtimeClassName";
    const ofResources = "requests limits example.com/gpu resizePolicy";
    const ofSecurity = "privileged runAsUser capabilities seLinuxOptions supplementalGroups fsGroup seccompProfile";
    const ofOthers =
      "externalIPs clusterIP taints unschedulable finalizers accessModes storageClassName capacity driverName replicas template serviceName";
    for (const field of [ofPods, ofScheduling, ofResources, ofSecurity, ofOthers].join(" ").split(" "))
      assert.ok(fields.has(field), field);
  });
});

describe("what is asked of one plugin", () => {
  const sampled = (homes: (string | undefined)[]) =>
    fc.sample(sequencesFor(everything, { homes, scenes: [scenes.growth] }), { seed: 7, numRuns: 1000 });

  it("plays in its namespaces, and in those that nobody made, where somebody looks in the end", () => {
    const sequences = sampled(["limited", undefined]);
    const homes = new Set(sequences.map(({ namespace }) => namespace));
    assert.deepEqual(homes, new Set(["default", "limited", undefined]));
    for (const { namespace, steps } of sequences)
      assert.equal(steps.at(-1)?.verb === "look", namespace === undefined, JSON.stringify(steps));
  });

  it("leaves alone where it is what stands there already", () => {
    const standing = sampled(["ending"]).filter(({ standing }) => standing !== undefined);
    const places = new Set(standing.map(({ namespace, standing }) => `${namespace}/${standing}`));
    assert.ok(places.has("default/bound-fast") && places.has("limited/bound-within"));
    assert.ok(![...places].some((place) => place.startsWith("ending/")));
  });

  it("is by all scenes that there are, and of plugins that have a port", () => {
    const played = new Set(Object.values(stages).flatMap(({ scenes = [] }) => scenes));
    assert.deepEqual(played, new Set(Object.keys(scenes)));
    const plugins = new Set(ports.map(({ rule }) => rule.twin.plugin));
    for (const plugin of Object.keys(stages)) assert.ok(plugins.has(plugin), plugin);
  });
});

describe("a comparison", () => {
  const answer = (code: number, body: object, warnings: string[] = []) =>
    comparable(
      { call: { method: "GET", path: "/", user: "admin" }, answer: { code, body: { ...body }, warnings }, name: "s0" },
      "s0",
    );
  const verdict = (one: ReturnType<typeof answer>, other: ReturnType<typeof answer>, rule = "some-rule") =>
    compare(rule, one, other).verdict;

  it("sees codes, warnings and what is said", () => {
    const one = answer(403, { reason: "Forbidden", message: "a", details: { name: "b" } });
    const others = [
      { ...one, code: 422 },
      { ...one, warnings: ["c"] },
      answer(403, { reason: "Invalid", message: "a", details: { name: "b" } }),
      answer(403, { reason: "Forbidden", message: "b", details: { name: "b" } }),
      answer(403, { reason: "Forbidden", message: "a", details: { name: "c" } }),
      answer(403, { reason: "Forbidden", message: "a" }),
    ];
    assert.equal(verdict(one, structuredClone(one)), "equal");
    for (const other of others)
      for (const { name } of ports) assert.equal(verdict(one, other, name), "different", JSON.stringify(other));
  });

  it("sees that a server's own values are there, not which", () => {
    const one = answer(201, { metadata: { uid: "a", name: "s0" }, spec: { clusterIP: "10.0.0.1" } });
    assert.equal(
      verdict(one, answer(201, { metadata: { uid: "b", name: "s0" }, spec: { clusterIP: "10.0.0.2" } })),
      "equal",
    );
    for (const other of [
      { metadata: { name: "s0" }, spec: { clusterIP: "10.0.0.2" } },
      { metadata: { uid: "b", name: "s0" }, spec: { clusterIP: "None" } },
      { metadata: { uid: "b", name: "s1" }, spec: { clusterIP: "10.0.0.2" } },
    ])
      assert.equal(verdict(one, answer(201, other)), "different");
  });

  it("minds no order of what API validation found, and misses nothing of it", () => {
    const invalid = (...found: string[]) =>
      answer(422, {
        reason: "Invalid",
        message: `Pod "s0" is invalid: [${found.map((field) => `${field}: Required value`).join(", ")}]`,
        details: { causes: found.map((field) => ({ reason: "FieldValueRequired", message: "Required value", field })) },
      });
    assert.equal(verdict(invalid("a", "b"), invalid("b", "a")), "equal");
    assert.equal(verdict(invalid("a", "b"), invalid("a", "c")), "different");
    assert.equal(verdict(invalid("a", "b"), invalid("a", "b", "c")), "different");
  });

  it("minds no order of the managers that a field is in conflict with, nor of any other causes", () => {
    const conflict = (reason: string, ...managers: string[]) =>
      answer(409, {
        message: "conflicts",
        details: { causes: managers.map((manager) => ({ reason, message: manager })) },
      });
    const known = "FieldManagerConflict";
    assert.equal(verdict(conflict(known, "a", "b"), conflict(known, "b", "a")), "equal");
    assert.equal(verdict(conflict(known, "a", "b"), conflict(known, "a", "c")), "different");
    assert.equal(verdict(conflict(known, "a", "b"), conflict(known, "a")), "different");
    assert.equal(
      verdict(conflict("FieldValueInvalid", "a", "b"), conflict("FieldValueInvalid", "b", "a")),
      "different",
    );
  });

  it("minds neither the order nor the times of managers, but what they own", () => {
    const managed = (...managers: [string, string][]) =>
      answer(200, {
        metadata: { managedFields: managers.map(([manager, time], index) => ({ manager, time, index: index && 0 })) },
      });
    assert.equal(verdict(managed(["a", "1"], ["b", "2"]), managed(["b", "3"], ["a", "4"])), "equal");
    assert.equal(verdict(managed(["a", "1"], ["b", "2"]), managed(["a", "1"], ["c", "2"])), "different");
    const owning = (fieldsV1: object) => answer(200, { metadata: { managedFields: [{ manager: "a", fieldsV1 }] } });
    assert.equal(verdict(owning({ "f:spec": {} }), owning({ "f:status": {} })), "different");
  });

  it("minds no order of a list's items, but of any other list", () => {
    const items = (...names: string[]) => answer(200, { items: names.map((name) => ({ metadata: { name } })) });
    assert.equal(verdict(items("a", "b"), items("b", "a")), "equal");
    assert.equal(verdict(items("a", "b"), items("a")), "different");
    const containers = (...names: string[]) => answer(200, { spec: { containers: names.map((name) => ({ name })) } });
    assert.equal(verdict(containers("a", "b"), containers("b", "a")), "different");
  });

  it("minds no order of what a strategic patch has twice", () => {
    const refused = (...lines: string[]) => answer(400, { message: `wrong: errors:\n${lines.join("\n")}` });
    assert.equal(verdict(refused("a", "b"), refused("b", "a")), "equal");
    assert.equal(verdict(refused("a", "b"), refused("a", "c")), "different");
  });

  it("minds no order of what a LimitRange has against one container, but of containers, pods and bounds", () => {
    const refused = (...faults: string[]) => answer(403, { message: `pods "s0" is forbidden: [${faults.join(", ")}]` });
    const [cpu, memory] = [
      "maximum cpu usage per Container is 2, but limit is 8",
      "maximum memory usage per Container is 2Gi, but limit is 8Gi",
    ];
    const [least, whole] = [
      "minimum cpu usage per Container is 1.  No request is specified",
      "maximum cpu usage per Pod is 3, but limit is 9",
    ];
    const ratio = "cpu max limit to request ratio per Container is 2, but no limit is specified or limit is 0";
    assert.equal(
      verdict(refused(least, cpu, memory, ratio, whole), refused(least, memory, cpu, ratio, whole)),
      "equal",
    );
    for (const other of [
      [cpu],
      [cpu, least, memory],
      [whole, cpu, memory],
      [ratio, cpu, memory],
      [cpu, cpu.replace("8", "9")],
    ])
      assert.equal(verdict(refused(cpu, memory), refused(...other)), "different", other.join());
    assert.equal(verdict(refused(cpu, whole), refused(whole, cpu)), "different");
    assert.equal(verdict(refused(least, cpu), refused(cpu, least)), "different");
  });

  it("minds neither uids and times in texts, nor how the volume of a token is called", () => {
    const told = (uid: string, time: string, volume: string) =>
      answer(422, { message: `${uid} at ${time} in ${volume}` });
    const [uid, other] = ["0f0e0d0c-0000-4000-8000-000000000001", "0f0e0d0c-0000-4000-8000-000000000002"];
    const [time, later] = ["2026-01-02T03:04:05Z", "2026-01-02T03:04:06Z"];
    const one = told(uid, time, "kube-api-access-bcdfg");
    assert.equal(verdict(one, told(other, later, "kube-api-access-24567")), "equal");
    assert.equal(verdict(one, told(other, later, "kube-api-access-mine")), "different");
    assert.equal(verdict(one, told("uid", later, "kube-api-access-24567")), "different");
  });

  const patches = "always-pull-images";

  it("knows what a rule can't read in an annotation by another text, and of no other rule", () => {
    const upstream = answer(500, { message: "invalid character 'o' in literal null (expecting 'u')" });
    const text = 'namespace "a" must have a JSON list of tolerations in its annotation example.com/tolerations';
    const ours = answer(403, { reason: "Forbidden", message: text });
    const rule = "pod-toleration-restriction";
    assert.equal(verdict(upstream, ours, rule), "known");
    assert.equal(verdict(upstream, ours), "different", "of another rule");
    assert.equal(verdict(answer(500, { message: "broken" }), ours, rule), "different");
    assert.equal(verdict(upstream, answer(403, { message: "broken" }), rule), "different");
    assert.equal(verdict(upstream, answer(201, { message: text }), rule), "different");
  });

  it("knows by other words why a backend's answer can't be taken, and nothing else that it says", () => {
    const refused = (text: string, code = 403) => answer(code, { message: `pods "s0" is forbidden: ${text}` });
    const upstream = refused("the server could not find the requested resource");
    const ours = refused("the image policy webhook backend answers 404");
    const rule = "image-policy-webhook";
    assert.equal(verdict(upstream, ours, rule), "known");
    assert.equal(verdict(upstream, ours), "different", "of another rule");
    assert.equal(verdict(upstream, refused("one or more images rejected by webhook backend"), rule), "different");
    assert.equal(verdict(refused("one or more images rejected by webhook backend"), ours, rule), "different");
    assert.equal(verdict(upstream, answer(201, {}), rule), "different");
  });

  it("knows what a kubelet isn't told or is told otherwise, and nothing else that is said to it", () => {
    const plain = (code: number, message: string) =>
      answer(code, { message, ...(code === 403 && { reason: "Forbidden" }) });
    const claims = "other than status.quantity and status.conditions:";
    const asked = 'PodCertificateRequest for pod "a/b"';
    const unread = "the PEM block holds no PKCS #10 certificate request in DER";
    for (const [code, said, ours] of [
      [403, "node n1 UID mismatch: expected 0 got ?", "node n1 UID mismatch: expected 0 got another"],
      [403, `${claims} @@ -3 +4\n b`, `${claims} metadata.labels`],
      [403, "unable to parse csr: asn1: syntax error", `unable to parse csr: ${unread}`],
      [
        500,
        `${asked} contains pod UID ("0") which differs from running pod "?"`,
        `${asked} contains pod UID ("0") which differs from running pod`,
      ],
      [
        500,
        `${asked} names node UID "0", inconsistent with the running node ("?")`,
        `${asked} names node UID "0", inconsistent with the running node`,
      ],
    ] as const) {
      const there = `pods "s0" is forbidden: ${said}`;
      const here = `pods "s0" is forbidden: ${ours}`;
      assert.equal(verdict(plain(code, there), plain(403, here), "node-restriction"), "known", said);
      assert.equal(verdict(plain(code, there), plain(403, here), "some-rule"), "different", said);
      assert.equal(
        verdict(plain(code, there), plain(403, `${here}!`.replace("pods", "nodes")), "node-restriction"),
        "different",
      );
      assert.equal(verdict(plain(201, there), plain(403, here), "node-restriction"), "different", said);
      assert.equal(verdict(plain(code, there), plain(201, here), "node-restriction"), "different", said);
      const warned = answer(403, { message: here, reason: "Forbidden" }, ["c"]);
      assert.equal(verdict(plain(code, there), warned, "node-restriction"), "different", said);
    }
  });

  it("knows that a namespace made for a request is managed by another, and otherwise the same", () => {
    const made = (manager: string, name = "s0") =>
      answer(200, { kind: "Namespace", metadata: { name, managedFields: [{ manager }] } });
    const rule = "namespace-auto-provision";
    assert.equal(verdict(made("kube-apiserver"), made("postern"), rule), "known");
    assert.equal(verdict(made("kube-apiserver"), made("postern")), "different", "of another rule");
    assert.equal(verdict(made("kube-apiserver"), made("jane"), rule), "different");
    assert.equal(verdict(made("kube-apiserver"), made("postern", "other"), rule), "different");
    assert.equal(verdict(made("kube-apiserver"), answer(404, {}), rule), "different");
  });

  it("knows that a missing namespace is named before the object is looked at, and nothing else of the answer", () => {
    const missing = answer(404, { reason: "NotFound", message: 'namespaces "shop" not found' });
    const warned = { ...missing, warnings: ["a"] };
    const invalid = answer(422, { reason: "Invalid", message: "name: Required value" }, ["a"]);
    const rule = "namespace-exists";
    for (const wanted of [warned, invalid]) {
      assert.equal(verdict(wanted, missing, rule), "known");
      assert.equal(verdict(wanted, missing), "different", "of another rule");
    }
    for (const [wanted, actual] of [
      [invalid, warned],
      [missing, invalid],
      [answer(201, {}), missing],
      [answer(500, { reason: "InternalError" }), missing],
      [invalid, answer(404, { reason: "NotFound", message: 'pods "shop" not found' })],
    ] as const)
      assert.equal(verdict(wanted, actual, rule), "different");
  });

  it("knows that a bare 500 of one plugin is 403 here, and of no other", () => {
    const upstream = answer(500, { code: 500, message: "pods is forbidden" });
    const ours = answer(403, { code: 403, reason: "Forbidden", message: "pods is forbidden" });
    assert.equal(verdict(upstream, ours, "always-pull-images"), "known");
    assert.equal(verdict(upstream, ours), "different");
    for (const [one, other] of [
      [ours, upstream],
      [upstream, answer(403, { reason: "Forbidden", message: "no" })],
      [upstream, answer(403, { reason: "Invalid", message: "pods is forbidden" })],
      [upstream, answer(422, { reason: "Forbidden", message: "pods is forbidden" })],
      [upstream, answer(403, { reason: "Forbidden", message: "pods is forbidden" }, ["a warning"])],
      [answer(500, { reason: "InternalError", message: "pods is forbidden" }), ours],
    ] as const)
      assert.equal(verdict(one, other, "always-pull-images"), "different");
  });

  it("knows that API validation shows what is empty as null here, and nothing else in its place", () => {
    const refused = (text: string, code = 422) => answer(code, { reason: "Invalid", message: text });
    const shown = (value: string) => refused(`spec.capacity: Unsupported value: ${value}: supported values: "storage"`);
    assert.equal(verdict(shown("{}"), shown("null"), patches), "known");
    assert.equal(verdict(shown("[]"), shown("null"), patches), "known");
    assert.equal(verdict(shown("{}"), shown("null")), "different", "of another rule");
    assert.equal(verdict(shown('{"a":1}'), shown("null"), patches), "different");
    assert.equal(verdict(shown('""'), shown("null"), patches), "different");
    assert.equal(verdict(refused("value: {}", 400), refused("value: null", 400), patches), "different");
  });

  it("knows that diffs in such messages may differ by what is empty, and lead to the same otherwise", () => {
    // Old: 20 lines, l1 to l20, of which l5 is Env and l15 is Image.
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
    const refused = (...hunks: string[]) =>
      answer(422, { message: `Pod is invalid: spec: Forbidden: may not change\n${hunks.join("")}` });
    const image = hunk(12, 18, 15, '"Image": "b",');

    const emptied = refused(hunk(2, 8, 5, '"Env": [],'), image);
    assert.equal(verdict(emptied, refused(image), patches), "known");
    for (const [one, other] of [
      // It is upstream that shows what is empty.
      [refused(image), emptied],
      [emptied, refused(hunk(12, 18, 15, '"Image": "c",'))],
      [emptied, refused(hunk(12, 18, 15, '"Image": "b",', '"Policy": "Always",'))],
      [refused(hunk(2, 8, 5, '"Env": ["x"],'), image), refused(image)],
      [emptied, refused(hunk(2, 8, 6, "other"), image)],
      [emptied, answer(422, { message: "Pod is invalid: spec: Forbidden: may not change" })],
    ] as const)
      assert.equal(verdict(one, other, patches), "different");
  });

  it("knows that tolerations stand in another order where a RuntimeClass brings some, and nowhere else", () => {
    const pod = (runtimeClassName: string | undefined, ...tolerations: object[]) =>
      answer(201, { kind: "Pod", spec: { ...(runtimeClassName && { runtimeClassName }), tolerations } });
    const [a, b] = [{ key: "a" }, { key: "b" }];
    const rule = "extended-resource-toleration";
    assert.equal(verdict(pod("c", a, b), pod("c", b, a), rule), "known");
    assert.equal(verdict(pod("c", a, b), pod("c", b, a)), "different", "of another rule");
    assert.equal(verdict(pod(undefined, a, b), pod(undefined, b, a), rule), "different");
    assert.equal(verdict(pod("c", a, b), pod("c", b), rule), "different");
    assert.equal(verdict(pod("c", a, b), pod("c", { ...b, tolerationSeconds: 5 }, a), rule), "different");
    assert.equal(verdict(pod("c", a, b), pod("d", b, a), rule), "different");
  });

  it("knows that a RuntimeClass drops what another toleration covers, and nothing else", () => {
    const pod = (runtimeClassName: string | undefined, ...tolerations: object[]) =>
      answer(201, { kind: "Pod", spec: { ...(runtimeClassName && { runtimeClassName }), tolerations } });
    const [all, gpu, a] = [
      { operator: "Exists" },
      { key: "gpu", operator: "Exists", effect: "NoSchedule" },
      { key: "a" },
    ];
    const rule = "extended-resource-toleration";
    assert.equal(verdict(pod("c", all), pod("c", all, gpu), rule), "known");
    assert.equal(verdict(pod("c", all), pod("c", all, gpu)), "different", "of another rule");
    assert.equal(verdict(pod(undefined, all), pod(undefined, all, gpu), rule), "different");
    assert.equal(verdict(pod("c", a), pod("c", a, gpu), rule), "different");
    assert.equal(verdict(pod("c", all, gpu), pod("c", all), rule), "different");
  });

  it("knows that what a RuntimeClass says of a lost node is not said again, and nothing else of it", () => {
    const pod = (runtimeClassName: string, tolerationSeconds: number, key = "node.kubernetes.io/not-ready") => {
      const toleration = { key, operator: "Exists", effect: "NoExecute", tolerationSeconds };
      return answer(201, { kind: "Pod", spec: { runtimeClassName, tolerations: [toleration] } });
    };
    const rule = "default-toleration-seconds";
    assert.equal(verdict(pod("impatient", 300), pod("impatient", 30), rule), "known");
    assert.equal(verdict(pod("impatient", 300), pod("impatient", 30)), "different", "of another rule");
    assert.equal(verdict(pod("impatient", 30), pod("impatient", 300), rule), "different");
    assert.equal(verdict(pod("impatient", 300), pod("impatient", 31), rule), "different");
    assert.equal(verdict(pod("sandboxed", 300), pod("sandboxed", 30), rule), "different");
    assert.equal(verdict(pod("impatient", 300, "other"), pod("impatient", 30, "other"), rule), "different");
  });

  it("shows both sides, and what they share only where they part", () => {
    const body = { a: 1, b: 2, c: 3, d: 4, e: 5 };
    assert.equal(
      diffOf(answer(200, body), answer(200, { ...body, e: 6 })),
      ['      "c": 3,', '      "d": 4,', '-     "e": 5', '+     "e": 6', "    },", '    "code": 200,'].join("\n"),
    );
  });
});

describe("the report in the catalogue", () => {
  const found: Parity = {
    ...{ rule: "a-rule", plugin: "ARule", requests: 10, equal: 9, known: { "for a reason": 1 }, unexplained: 0 },
    ...{ failedConditions: {}, calls: { made: 3, acted: 2, withoutConditions: 8 }, differences: [] },
  };
  const page = "# The catalogue\n\nA list.\n\nMore.\n";

  it("says what was asked, what differs and why, and what the conditions save", () => {
    const text = section([found], "v1.36.3", 7);
    assert.match(text, /kube-apiserver v1\.36\.3/);
    assert.match(text, /\| a-rule \| 10 \| 9 \| 1 \| 0 \| 3 \| 2 \| 8 \| 63% \|/);
    assert.match(text, /- for a reason \(a-rule\)/);
  });

  it("stands at the end of the page, and another takes its place", () => {
    const once = withSection(page, section([found], "v1.36.3", 7));
    assert.ok(once.startsWith(page));
    const moved = `${once}\nWhat somebody wrote below.\n`;
    const twice = withSection(moved, section([{ ...found, requests: 20 }], "v1.36.4", 8));
    assert.equal(twice.split("## Parity").length, 2);
    assert.doesNotMatch(twice, /v1\.36\.3/);
    assert.ok(twice.startsWith(page) && twice.endsWith("\nWhat somebody wrote below.\n"));
  });

  it("is there, about every port, with nothing unexplained; and npm run fix leaves it alone", async () => {
    const present = await readFile(join(catalogueFolder, "README.md"), "utf8");
    const { wanted } = await listing(catalogue.slice(1));
    const [report] =
      /<!-- Written by npx postern parity --write\. -->[\s\S]*<!-- End of parity\. -->/.exec(present) ?? [];
    assert.ok(report);
    assert.notEqual(wanted, present);
    assert.ok(wanted.includes(report));
    for (const { name } of ports)
      assert.match(report, new RegExp(`^\\| ${name} \\| 2000 \\| \\d+ \\| \\d+ \\| 0 \\|`, "m"));
  });
});

describe("postern parity", () => {
  let folder: string;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), "postern-parity-"));
  });
  after(() => rm(folder, { recursive: true }));

  const postern = (words: string[], more: Record<string, string> = {}) =>
    new Promise<{ code: number; stdout: string; stderr: string }>((resolve) => {
      const { NODE_TEST_CONTEXT: _, ...env } = process.env;
      execFile(
        process.execPath,
        [fileURLToPath(new URL("../../infra/postern.js", import.meta.url)), "parity", ...words],
        { env: { ...env, ...more }, timeout: 300_000 },
        (error, stdout, stderr) => resolve({ code: Number(error?.code ?? 0), stdout, stderr }),
      );
    });

  it("says where the API server is missing, and could not evaluate", async () => {
    const { code, stdout, stderr } = await postern([], { KUBEBUILDER_ASSETS: folder });
    assert.match(stderr, /^kube-apiserver and etcd v[\d.]+ are not here: npm run cluster builds them\n$/);
    assert.deepEqual([code, stdout], [3, ""]);
  });

  it("refuses a rule that there is not", async () => {
    const { code, stdout, stderr } = await postern(["no-such-rule"]);
    assert.equal(stderr, 'there is no rule "no-such-rule"; postern rules lists them\n');
    assert.deepEqual([code, stdout], [2, ""]);
  });

  it("shows by one small request that a rule has other settings than its plugin", apiserver, async () => {
    const config = join(folder, "other.yaml");
    await writeFile(config, "rules: { default-toleration-seconds: { settings: { unreachableSeconds: 7 } } }\n");
    const words = ["default-toleration-seconds", "--seed", "7", "--requests", "30", "--config", config];
    const { code, stdout, stderr } = await postern(words);
    assert.equal(code, 1, stdout + stderr);
    assert.match(stdout, /\nRULE .* SAVED\ndefault-toleration-seconds +30 /);
    const [, first = ""] = /\n\n(default-toleration-seconds differs[\s\S]*?)\n\n/.exec(stdout) ?? [];
    const [says, call = "", ...rest] = first.split("\n");
    assert.equal(says, "default-toleration-seconds differs from upstream (-) in the answer to the last of");
    assert.match(call, /^ {2}(POST|PATCH) \/api\/v1\/namespaces\/default\/pods\S* as admin /);
    assert.ok(call.length < 400, call);
    assert.ok(rest.includes('-           "tolerationSeconds": 300'), first);
    assert.ok(rest.includes('+           "tolerationSeconds": 7'), first);
    assert.equal(rest.at(-1), `To ask again: npx postern parity ${words.join(" ")}`);
  });
});

describe("on a real API server", { ...apiserver, concurrency: 2 }, () => {
  const seed = Number(process.env.POSTERN_SEED ?? randomInt(2 ** 31));
  /** Other ones with each seed; `npx postern parity --requests 1000` asks more at once. */
  const requests = 60;
  const isMissing = ({ rule: { twin } }: (typeof ports)[number]) =>
    plugins?.all.includes(twin.plugin) ? false : `${twin.plugin} is not in Kubernetes ${binaries?.version}`;
  const ask = async (port: (typeof ports)[number], requests: number) => {
    const binaries = await requireBinaries();
    return parityOf(port, binaries, { requests, seed });
  };

  for (const port of ports)
    it(`${port.name} answers as ${port.rule.twin.plugin} does`, { skip: isMissing(port) }, async (context) => {
      context.diagnostic(`POSTERN_SEED=${seed} asks the same again`);
      const { unexplained, failedConditions, differences, equal, known } = await ask(port, requests);
      const told = differences.map(({ calls, diff }) => `${calls.join("\n")}\n${diff}`).join("\n\n");
      assert.deepEqual(failedConditions, {});
      assert.equal(unexplained, 0, `POSTERN_SEED=${seed} asks the same again\n${told}`);
      assert.equal(
        Object.values(known).reduce((sum, count) => sum + count, equal),
        requests,
      );
    });

  it("a condition that fails is counted, and is a difference", async () => {
    const port = ports.find(({ name }) => name === "deny-service-external-ips");
    assert.ok(port);
    const matchConditions = { fails: 'object.metadata.nobody == "a"' };
    const { unexplained, failedConditions } = await ask({ ...port, rule: { ...port.rule, matchConditions } }, 20);
    const [[webhook, count = 0] = []] = Object.entries(failedConditions);
    assert.equal(webhook, "deny-service-external-ips.postern.dev");
    assert.ok(count > 0 && unexplained > count);
  });
});

import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { parse, parseAllDocuments, stringify } from "yaml";
import type { Operation, UserInfo } from "#lib/review.ts";
import { rule } from "#lib/rule.ts";
import { toCatalogueRule } from "../../test/catalogue-rules.ts";
import { createTestFolder } from "../../test/folders.ts";
import { startSharedKubernetes } from "../../test/kubernetes.ts";
import { needs } from "../../test/parts.ts";
import { readCatalogue } from "../catalogue/registry.ts";
import { chooseCluster } from "../config/config.ts";
import { parseConfig } from "../project/project.ts";
import { prepareManifestCheck } from "./check.ts";
import type { FieldValidation } from "./evaluation/object-evaluation.ts";
import { applyFixes, type ManifestFix, toFix } from "./fixes/fix.ts";
import { describeMissingKubernetes } from "./notes.ts";
import { createJsonReport } from "./reports/json-report.ts";

interface CheckCase {
  name: string;
  /** The rules in postern.yaml: the name of one, or a list of names with settings. */
  rules: string;
  manifests: object[];
  state?: object[]; // other objects in the cluster
  old?: object[]; // the stored objects before an update
  webhooks?: object[];
  operation?: Operation;
  namespace?: string;
  kubernetes?: string;
  user?: UserInfo;
  alsoPods?: boolean; // checks the Pods of workloads, too
  strict?: boolean;
  validate?: FieldValidation;
  /** True for a case that needs Kubernetes' own handlers; other cases have the same outcome without the handlers. */
  needsKubernetes?: boolean;
  /** By default none, so that a case shows what rules do. */
  plugins?: string[];
  verdicts?: Record<string, string>;
  assumed?: Record<string, string[]>; // what check assumed about each object
  notes?: string[];
  passed?: Record<string, string[]>; // the rules that each object passed
  /** The rules that exceptions exempt each object from, with the texts of the exceptions. */
  exempt?: Record<string, string[]>;
  /** The rules and policies that change each object. */
  changes?: Record<string, string[]>;
  warnings?: Record<string, string[]>; // all warnings about each object, such as "limit-ranger: the text"
  /** The annotations for the audit log of the objects that have some. */
  audit?: Record<string, Record<string, string>>;
  after?: Record<string, object>; // members of each object after all changes
  /** What an API server would store. */
  stored?: Record<string, object>;
  error?: string;
}

// These cases test what check assumes about a cluster and what it reports as unknown. test/local/check.test.ts tests
// the command.
const text = await readFile(new URL("check.test.yaml", import.meta.url), "utf8");
const cases: CheckCase[] = parse(text, { maxAliasCount: -1, merge: true });
const shipped = await readCatalogue();
const kubernetes = await needs("Kubernetes module");
const folder = await createTestFolder();

/** Writes objects to a file, and returns its path in a list; an empty list if there are no objects. */
const writeManifests = async (name: string, objects?: object[]): Promise<string[]> => {
  if (objects === undefined) return [];
  const file = join(folder, name);
  await writeFile(file, objects.map((object) => stringify(object, { aliasDuplicateObjects: false })).join("---\n"));
  return [file];
};

const runCheck = async (
  { rules, manifests, state, old, webhooks, ...options }: Omit<CheckCase, "name">,
  catalogue = shipped,
) => {
  // The name of one rule becomes a map entry without settings: `name:`.
  const ruleEntries = rules.includes(":") ? rules : `${rules}:`;
  const config = parseConfig(`rules: { ${ruleEntries} }`, catalogue);
  const [name, cluster] = chooseCluster(config, undefined);
  const { kubernetes } = options;
  const check = await prepareManifestCheck({
    catalogue,
    cluster: [name, kubernetes === undefined ? cluster : { ...cluster, kubernetes }],
    harden: false,
    paths: await writeManifests("manifests.yaml", manifests),
    reviews: [],
    state: await writeManifests("state.yaml", state),
    isStrict: options.strict ?? false,
    validate: options.validate ?? "strict",
    old: await writeManifests("old.yaml", old),
    webhooks: await writeManifests("webhooks.yaml", webhooks),
    hosts: [],
    plugins: options.plugins ?? ["none"],
    operation: options.operation,
    namespace: options.namespace ?? "default",
    alsoPods: options.alsoPods ?? false,
    user: options.user ?? { username: "jane" },
    startKubernetes: startSharedKubernetes,
  });
  const report = createJsonReport();
  let json = "";
  const fixes: (ManifestFix | undefined)[] = [];
  const verdicts: Record<string, string> = {};
  const passed: Record<string, string[]> = {};
  const assumed: Record<string, string[]> = {};
  const after: Record<string, unknown> = {};
  const stored: Record<string, unknown> = {};
  for await (const evaluation of check.evaluations) {
    const { name, verdict, denials, undecided, passed: rules } = evaluation.checked;
    verdicts[name] = [verdict, ...denials.map(({ message }) => message), ...undecided].join("; ");
    passed[name] = rules;
    assumed[name] = evaluation.checked.assumed;
    after[name] = evaluation.after;
    stored[name] = evaluation.stored;
    json += report.add(evaluation);
    fixes.push(toFix(evaluation, check.secretsRead));
  }
  const notes = [...check.notes]
    .filter((note) => note !== describeMissingKubernetes())
    .map((note) => note.replaceAll(`${folder}/`, ""));
  type ReportedObject = Record<"name", string> & Record<"hooks" | "changes" | "warnings", any[]> & { audit: object };
  // The list and the map are closed here, because the end of the report isn't written.
  const objects: (ReportedObject & { exempt?: Record<"rule" | "text", string>[] })[] = JSON.parse(`${json}]}`).objects;
  return { verdicts, passed, assumed, after, stored, notes, objects, fixes };
};

/** Reports whether a text is the expected one; an expected text between slashes is a regular expression. */
const isExpected = (actual: string, expected: string): boolean => {
  const [, pattern] = /^\/(.*)\/$/s.exec(expected) ?? [];
  return pattern === undefined ? actual === expected : new RegExp(pattern, "m").test(actual);
};

const assertTexts = (actual: readonly string[], expected: readonly string[]) => {
  assert.equal(actual.length, expected.length, actual.join("\n"));
  for (const text of expected)
    assert.ok(
      actual.some((candidate) => isExpected(candidate, text)),
      `${text}\nis not among\n${actual.join("\n")}`,
    );
};

describe("check", () => {
  for (const { name, error, needsKubernetes, ...expected } of cases)
    it(name, needsKubernetes ? kubernetes : {}, async () => {
      if (error !== undefined) {
        const { message } = await runCheck(expected).then(
          () => assert.fail("it throws nothing"),
          (thrown) => thrown,
        );
        return assertTexts([message.replaceAll(`${folder}/`, "")], [error]);
      }
      const { verdicts, notes, passed, assumed, after, stored, objects } = await runCheck(expected);
      if (expected.verdicts !== undefined) {
        assert.deepEqual(Object.keys(verdicts).sort(), Object.keys(expected.verdicts).sort());
        for (const [object, verdict] of Object.entries(expected.verdicts))
          assertTexts([String(verdicts[object])], [verdict]);
      }
      if (expected.notes !== undefined) assertTexts(notes, expected.notes);
      if (expected.assumed !== undefined) assert.deepEqual(assumed, expected.assumed);
      /** Collects findings of one kind by the object's name. Objects without findings are absent. */
      const collect = (listFindings: (reported: (typeof objects)[0]) => object) => {
        const findings = objects.map((reported): [string, object] => [reported.name, listFindings(reported)]);
        return Object.fromEntries(findings.filter(([, found]) => Object.keys(found).length > 0));
      };
      const listings: Record<"changes" | "warnings" | "audit" | "exempt", Parameters<typeof collect>[0]> = {
        changes: ({ changes }) => changes.map(({ rule }) => rule),
        warnings: ({ warnings }) => warnings.map(({ rule, text }) => `${rule}: ${text}`),
        audit: ({ audit }) => audit,
        exempt: ({ exempt = [] }) => exempt.map(({ rule, text }) => `${rule} ${text}`),
      };
      for (const kind of ["changes", "warnings", "audit", "exempt"] as const)
        if (expected[kind] !== undefined) assert.deepEqual(collect(listings[kind]), expected[kind]);
      if (expected.passed !== undefined) assert.deepEqual(passed, expected.passed);
      if (expected.after !== undefined) assert.partialDeepStrictEqual(after, expected.after);
      if (expected.stored !== undefined) assert.partialDeepStrictEqual(stored, expected.stored);
      return undefined;
    });

  it("check names the rule whose settings give an entry that an API server would refuse", async () => {
    const wrong = rule({
      summary: "Has operations of its settings.",
      match: ({ operation }) => [
        { apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: [operation] },
      ],
      settings: { operation: "CREATE" as Operation },
      validate() {},
    });
    const listed = [toCatalogueRule("forbid-operations", wrong)];
    await assert.rejects(
      runCheck({ rules: "forbid-operations: { settings: { operation: CREAT } }", manifests: [] }, listed),
      {
        message:
          'forbid-operations.postern.dev: rules[0].operations: Unsupported value: "CREAT": supported values: "*", "CONNECT", "CREATE", "DELETE", "UPDATE"',
      },
    );
  });

  it("check reports for each call of a policy or a webhook whether the call changed the object", async () => {
    const apiVersion = "admissionregistration.k8s.io/v1";
    const resourceRules = [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE"] }];
    const buildAddition = (name: string, member: string) => {
      const expression = `has(object.metadata.${member}) ? [] : [JSONPatch{op: "add", path: "/metadata/${member}", value: {"a": "b"}}]`;
      return buildChange(name, "pods", expression, { policyFields: { reinvocationPolicy: "IfNeeded" } });
    };
    const policies = [...buildAddition("first", "labels"), ...buildAddition("second", "annotations")];
    const webhook = {
      name: "other.example.com",
      rules: resourceRules,
      clientConfig: { url: "https://other.example.com" },
      sideEffects: "None",
      admissionReviewVersions: ["v1"],
    };
    const spec = { containers: [{ name: "c", image: "a:1" }] };
    const { objects } = await runCheck({
      rules: `mutating-admission-policy: { settings: { policies: ${JSON.stringify(policies)} } }`,
      manifests: [{ apiVersion: "v1", kind: "Pod", metadata: { name: "web" }, spec }],
      webhooks: [
        { apiVersion, kind: "ValidatingWebhookConfiguration", metadata: { name: "other" }, webhooks: [webhook] },
      ],
    });
    const steps = objects[0]?.hooks.map(
      ({ hook, round, outcome, changed }) => `${hook} ${round} ${outcome} ${changed}`,
    );
    assert.deepEqual(steps, [
      "first.mutating-admission-policy.postern.dev 0 called true",
      "second.mutating-admission-policy.postern.dev 0 called true",
      "first.mutating-admission-policy.postern.dev 1 called false",
      "other.example.com 0 can't say false",
    ]);
  });

  /** Builds a policy that changes the objects of a resource, and its binding; `policyFields` is added to its spec. */
  const buildChange = (
    name: string,
    resource: string,
    expression: string,
    { policyFields = {}, bindingFields = {} } = {},
  ) => {
    const apiVersion = "admissionregistration.k8s.io/v1";
    const resourceRules = [{ apiGroups: [""], apiVersions: ["v1"], resources: [resource], operations: ["CREATE"] }];
    const mutations = [{ patchType: "JSONPatch", jsonPatch: { expression } }];
    const spec = { matchConstraints: { resourceRules }, reinvocationPolicy: "Never", mutations, ...policyFields };
    const bindingSpec = { policyName: name, ...bindingFields };
    return [
      { apiVersion, kind: "MutatingAdmissionPolicy", metadata: { name }, spec },
      { apiVersion, kind: "MutatingAdmissionPolicyBinding", metadata: { name }, spec: bindingSpec },
    ];
  };

  it("check fixes what a policy changes, but writes no defaults of plugins and no values of Secrets", async () => {
    const metadata = { name: "m", namespace: "default" };
    const pod = { apiVersion: "v1", kind: "Pod", metadata, spec: { containers: [{ name: "c", image: "a:1" }] } };
    const { fixes } = await runCheck({
      rules: "always-admit",
      plugins: [],
      manifests: [pod, { apiVersion: "v1", kind: "ConfigMap", metadata }],
      state: [
        { apiVersion: "v1", kind: "Namespace", metadata: { name: "default" } },
        { apiVersion: "v1", kind: "ServiceAccount", metadata: { ...metadata, name: "default" } },
        { apiVersion: "scheduling.k8s.io/v1", kind: "PriorityClass", metadata: { name: "high" }, value: 7 },
        { apiVersion: "v1", kind: "Secret", metadata: { ...metadata, name: "s" }, data: { a: "c3VwZXJzZWNyZXQ=" } },
        ...buildChange(
          "important",
          "pods",
          '[JSONPatch{op: "remove", path: "/spec/priority"}, JSONPatch{op: "add", path: "/spec/priorityClassName", value: "high"}]',
        ),
        ...buildChange(
          "copy",
          "configmaps",
          '[JSONPatch{op: "add", path: "/data", value: {"a": string(params.data.a)}}]',
          {
            policyFields: { paramKind: { apiVersion: "v1", kind: "Secret" } },
            bindingFields: { paramRef: { name: "s", parameterNotFoundAction: "Deny" } },
          },
        ),
      ],
    });
    const [copied, changed] = fixes.map((fix) => fix && applyFixes(fix.manifest.source.text, [fix]));
    assert.deepEqual(copied, { kept: "a change has the value of a Secret that a rule or a policy reads" });
    assert.ok(changed && "text" in changed);
    assert.deepEqual(parseAllDocuments(changed.text)[0]?.toJS(), {
      ...pod,
      spec: { ...pod.spec, priorityClassName: "high" },
    });
  });

  it("check shows integers beyond 2^53 to policies exactly, and to other rules rounded", async () => {
    const apiVersion = "admissionregistration.k8s.io/v1";
    const resourceRules = [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE"] }];
    const validations = [
      {
        expression: "object.spec.terminationGracePeriodSeconds != 9007199254740993",
        messageExpression: "'it waits ' + string(object.spec.terminationGracePeriodSeconds) + ' seconds'",
      },
    ];
    const metadata = { name: "a" };
    const policySpec = { matchConstraints: { resourceRules }, validations };
    const bindingSpec = { policyName: "a", validationActions: ["Deny"] };
    const policies = [
      { apiVersion, kind: "ValidatingAdmissionPolicy", metadata, spec: policySpec },
      { apiVersion, kind: "ValidatingAdmissionPolicyBinding", metadata, spec: bindingSpec },
    ];
    const buildPod = (name: string, terminationGracePeriodSeconds: bigint) => ({
      apiVersion: "v1",
      kind: "Pod",
      metadata: { name },
      spec: { containers: [{ name: "c", image: "a:1" }], terminationGracePeriodSeconds },
    });
    const { verdicts, after } = await runCheck({
      rules: `validating-admission-policy: { settings: { policies: ${JSON.stringify(policies)} } }, always-pull-images: {}`,
      manifests: [buildPod("less", 9007199254740992n), buildPod("equal", 9007199254740993n)],
    });
    assert.equal(verdicts.less, "changed");
    assert.match(String(verdicts.equal), /^denied; .* it waits 9007199254740993 seconds$/);
    const spec = { containers: [{ imagePullPolicy: "Always" }], terminationGracePeriodSeconds: 9007199254740992n };
    assert.partialDeepStrictEqual(after.less, { spec });
  });
});

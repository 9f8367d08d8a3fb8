import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { readCatalogue } from "../../infra/catalogue/registry.ts";
import { openClusterApi } from "../../infra/clusters/access.ts";
import type { ClusterApi, DeployedObject } from "../../infra/clusters/api.ts";
import { applyWantedObjectsToCluster, deletePosternObjects, findDifferences } from "../../infra/clusters/apply.ts";
import { readPolicySupport } from "../../infra/clusters/version.ts";
import { chooseCluster, type PolicySupport } from "../../infra/config/config.ts";
import { readOrCreateServerCertificate } from "../../infra/keys/keys.ts";
import { parseConfig } from "../../infra/project/project.ts";
import { buildNativePolicies } from "../../infra/webhooks/native-policies.ts";
import { buildKubeconfig } from "../checkout.ts";
import { chooseMinors, chooseUpgrade } from "../choices.ts";
import { newestMinor, requireBinaries } from "../control-plane/binaries.ts";
import { bootCluster, type TestCluster } from "../control-plane/cluster.ts";
import { serveTestRules, waitUntil } from "../parity/rule-server.ts";
import { needs } from "../parts.ts";

// Tests policies that real API servers evaluate themselves. Clients write all the time while policies move between
// their webhook entries and the API server, before and after an upgrade of the cluster.

const apiVersion = "admissionregistration.k8s.io/v1";
const matchConstraints = {
  resourceRules: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["configmaps"], operations: ["CREATE"] }],
};
/** Returns a policy that requires a label of ConfigMaps, a policy that adds data to ConfigMaps, and their bindings. */
const buildPolicies = (label: string, actions = ["Deny"]) => [
  {
    apiVersion,
    kind: "ValidatingAdmissionPolicy",
    metadata: { name: "require-label" },
    spec: {
      matchConstraints,
      validations: [
        { expression: `has(object.metadata.labels) && '${label}' in object.metadata.labels`, message: "no label" },
      ],
    },
  },
  {
    apiVersion,
    kind: "ValidatingAdmissionPolicyBinding",
    metadata: { name: "require-label" },
    spec: { policyName: "require-label", validationActions: actions },
  },
  {
    apiVersion,
    kind: "MutatingAdmissionPolicy",
    metadata: { name: "add-data" },
    spec: {
      matchConstraints,
      reinvocationPolicy: "Never",
      mutations: [
        { patchType: "ApplyConfiguration", applyConfiguration: { expression: "Object{data: {'added': 'yes'}}" } },
      ],
    },
  },
  {
    apiVersion,
    kind: "MutatingAdmissionPolicyBinding",
    metadata: { name: "add-data" },
    spec: { policyName: "add-data" },
  },
];
const buildYaml = (policies: object[], exempt: object = { users: ["system:exempt"] }) => {
  const setup = { settings: { policies }, exempt, timeoutSeconds: 10 };
  const rules = { "validating-admission-policy": setup, "mutating-admission-policy": setup };
  return JSON.stringify({ rules, clusters: { local: { connect: { kubeconfig: "unused" } } } });
};

const catalogue = (await readCatalogue()).filter(({ name }) => name.endsWith("-admission-policy"));
const name = "postern";

describe("policies in a cluster whose plugin for them is off", await needs("API server"), () => {
  it("policies keep their webhook entries if the API server wouldn't evaluate them", async () => {
    const folder = await mkdtemp(join(tmpdir(), "postern-native-"));
    const certificate = await readOrCreateServerCertificate(folder, "127.0.0.1");
    const yaml = buildYaml(buildPolicies("team"));
    const rules = await serveTestRules(catalogue, yaml, { certificate });
    const cluster = await bootCluster(await requireBinaries(), { disable: ["ValidatingAdmissionPolicy"] });
    try {
      await writeFile(join(folder, "kubeconfig"), buildKubeconfig({ local: cluster }));
      const api = await openClusterApi("local", undefined, { kubeconfig: join(folder, "kubeconfig") });
      await applyWantedObjectsToCluster(api, rules.manifests(), name);
      const [, config] = chooseCluster(parseConfig(yaml, catalogue), undefined);
      const policySupport = await readPolicySupport(api);
      const nativePolicies = buildNativePolicies(catalogue, { ...config, policySupport }, name);
      await assert.rejects(applyWantedObjectsToCluster(api, nativePolicies, name), {
        message:
          "cluster local: its API server hasn't applied a new ValidatingAdmissionPolicy for 30 s, so no webhook entry was deleted; its admission plugin ValidatingAdmissionPolicy must be on",
      });
      assert.ok(await api.get({ kind: "ValidatingWebhookConfiguration", name }));
      assert.deepEqual(await api.list("ValidatingAdmissionPolicy"), []);
    } finally {
      await Promise.all([cluster.stop(), rules.stop()]);
      await rm(folder, { recursive: true, force: true });
    }
  });
});

const template = "Object.spec.template.spec";
const initContainers = [{ name: "a", image: "i" }];
/**
 * Mutations with values of CEL that only some minors convert to fields of the changed object: objects in a JSON patch,
 * and a list that `split` returns. The test's Deployments have one init container, z.
 */
const mutations: Record<string, { expression: string; becomes: object }> = {
  object: {
    expression: `[JSONPatch{op: 'add', path: '/spec/template/spec/initContainers/0', value: ${template}.initContainers{name: 'a', image: 'i'}}]`,
    becomes: { initContainers: [...initContainers, { name: "z", image: "i" }] },
  },
  list: {
    expression: `[JSONPatch{op: 'add', path: '/spec/template/spec/initContainers', value: [${template}.initContainers{name: 'a', image: 'i'}]}]`,
    becomes: { initContainers },
  },
  map: {
    expression: `[JSONPatch{op: 'add', path: '/spec/template/spec/securityContext', value: {'seccompProfile': ${template}.securityContext.seccompProfile{type: 'RuntimeDefault'}}}]`,
    becomes: { securityContext: { seccompProfile: { type: "RuntimeDefault" } } },
  },
  sum: {
    expression: `[JSONPatch{op: 'add', path: '/spec/template/spec/initContainers', value: [${template}.initContainers{name: 'a', image: 'i'}] + object.spec.template.spec.initContainers}]`,
    becomes: { initContainers: [...initContainers, { name: "z", image: "i" }] },
  },
  loop: {
    expression: `[JSONPatch{op: 'add', path: '/spec/template/spec/initContainers', value: object.spec.template.spec.initContainers.map(c, ${template}.initContainers{name: 'a', image: c.image})}]`,
    becomes: { initContainers },
  },
  texts: {
    expression: `Object{metadata: Object.metadata{finalizers: 'a.b/c,d.e/f'.split(',')}}`,
    becomes: { finalizers: ["a.b/c", "d.e/f"] },
  },
};

for (const minor of chooseMinors())
  describe(
    `mutating policies with values of CEL that some minors don't convert to fields of an object, in ${minor}`,
    await needs("API server", ...(minor === newestMinor ? [] : (["older API server"] as const))),
    () => {
      const policies = Object.entries(mutations).flatMap(([name, { expression }]) => {
        const patchType = expression.startsWith("[") ? "JSONPatch" : "ApplyConfiguration";
        const mutation = {
          patchType,
          [patchType === "JSONPatch" ? "jsonPatch" : "applyConfiguration"]: { expression },
        };
        const resourceRules = [
          { apiGroups: ["apps"], apiVersions: ["v1"], resources: ["deployments"], operations: ["CREATE"] },
        ];
        // A Deployment's label states the only policy that changes it.
        const spec = {
          reinvocationPolicy: "Never",
          mutations: [mutation],
          matchConstraints: { resourceRules, objectSelector: { matchLabels: { policy: name } } },
        };
        const kind = "MutatingAdmissionPolicy";
        return [
          { apiVersion, kind, metadata: { name }, spec },
          { apiVersion, kind: `${kind}Binding`, metadata: { name }, spec: { policyName: name } },
        ];
      });
      let folder: string;
      let cluster: TestCluster;
      let rules: Awaited<ReturnType<typeof serveTestRules>>;
      before(async () => {
        folder = await mkdtemp(join(tmpdir(), "postern-native-"));
        const certificate = await readOrCreateServerCertificate(folder, "127.0.0.1");
        // No user is exempt (`{}`), because exemptions become conditions of the policies. If a policy has conditions,
        // API servers of 1.37 convert no values in its JSON patches.
        const yaml = buildYaml(policies, {});
        rules = await serveTestRules(catalogue, yaml, { certificate });
        cluster = await bootCluster(await requireBinaries(minor));
        await writeFile(join(folder, "kubeconfig"), buildKubeconfig({ local: cluster }));
        const api = await openClusterApi("local", undefined, { kubeconfig: join(folder, "kubeconfig") });
        const policySupport = await readPolicySupport(api);
        const [, config] = chooseCluster(parseConfig(yaml, catalogue), undefined);
        const nativePolicies = buildNativePolicies(catalogue, { ...config, policySupport }, name);
        await applyWantedObjectsToCluster(api, [...nativePolicies, ...rules.manifests({ policySupport })], name);
      });
      after(async () => {
        await Promise.all([cluster?.stop(), rules?.stop()]);
        await rm(folder, { recursive: true, force: true });
      });

      for (const [policy, { becomes }] of Object.entries(mutations))
        it(`the mutation "${policy}" changes an object in the API server, or by a webhook entry`, async () => {
          const labels = { app: "a" };
          const containers = [{ name: "c", image: "i" }];
          const spec = { containers, initContainers: [{ name: "z", image: "i" }] };
          const body = {
            metadata: { name: policy, labels: { policy } },
            spec: { selector: { matchLabels: labels }, template: { metadata: { labels }, spec } },
          };
          const path = "/apis/apps/v1/namespaces/default/deployments?dryRun=All";
          await waitUntil(`the policy ${policy} has no effect`, async () => {
            const { code, body: created } = await cluster.admin({ method: "POST", path, body });
            assert.equal(code, 201, JSON.stringify(created));
            const fields = { ...Object(created.metadata), ...Object(Object(created.spec).template).spec };
            return Object.entries(becomes).every(([key, value]) => isPartOf(value, fields[key]));
          });
        });
    },
  );

/** Reports whether a value has all members of `part`. Lists must have the same length. */
const isPartOf = (part: unknown, value: unknown): boolean => {
  if (typeof part !== "object" || part === null) return part === value;
  if (Array.isArray(part) && part.length !== Object(value).length) return false;
  return Object.entries(part).every(([key, member]) => isPartOf(member, Object(value)[key]));
};

const { older, newer, skip } = chooseUpgrade(1);
const suite = skip === undefined ? await needs("API server", "older API server") : { skip };
describe("policies in a cluster that is upgraded", suite, () => {
  let folder: string;
  let cluster: TestCluster;
  let api: ClusterApi;
  let rules: Awaited<ReturnType<typeof serveTestRules>>;
  let yaml = buildYaml(buildPolicies("team"));

  const boot = async (minor: string, store?: string) => {
    // etcd 3.7 can't read data of etcd 3.5, so the newest etcd stores the data of both minors.
    const { etcd } = await requireBinaries(newer);
    cluster = await bootCluster({ ...(await requireBinaries(minor)), etcd }, store === undefined ? {} : { store });
    const file = join(folder, "kubeconfig");
    await writeFile(file, buildKubeconfig({ local: cluster }));
    api = await openClusterApi("local", undefined, { kubeconfig: file });
  };
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), "postern-native-"));
    const certificate = await readOrCreateServerCertificate(folder, "127.0.0.1");
    rules = await serveTestRules(catalogue, yaml, { certificate });
    await boot(older);
  });
  after(async () => {
    await Promise.all([cluster?.stop(), rules?.stop()]);
    await rm(folder, { recursive: true, force: true });
  });

  /** Returns the objects of a deployment. Without `policySupport`, all policies have webhook entries. */
  const buildWanted = (policySupport?: PolicySupport) => {
    const [, config] = chooseCluster(parseConfig(yaml, catalogue), undefined);
    return [
      ...buildNativePolicies(catalogue, { ...config, policySupport }, name),
      ...rules.manifests({ policySupport }),
    ];
  };
  const apply = async (wanted: object[]) =>
    (await applyWantedObjectsToCluster(api, wanted, name)).map(({ did, kind }) => `${did} ${kind}`);
  const listSentences = async (wanted: object[]) =>
    (await findDifferences(api, wanted, name)).map(({ sentence }) => sentence);
  const write = async (labels: object, query = "") => {
    const body = { metadata: { generateName: "a-", labels } };
    return cluster.admin({ method: "POST", path: `/api/v1/namespaces/default/configmaps${query}`, body });
  };
  const hasAddedData = (body: Record<string, unknown>) => Object(body.data).added === "yes";
  const untilEffective = () =>
    waitUntil("the policies have no effect", async () => {
      const [refused, changed] = await Promise.all([write({}, "?dryRun=All"), write({ team: "a" }, "?dryRun=All")]);
      return refused.code !== 201 && hasAddedData(changed.body);
    });

  /**
   * Runs `act`, which moves policies between webhook entries and the API server. Meanwhile, eight clients write objects
   * that must be refused, and objects that must be changed. The clients stop hundreds of writes later, once `isMoved`
   * is true for the numbers of objects that webhook entries and the API server's own policies have refused.
   */
  const writeDuring = async (
    act: () => Promise<unknown>,
    isMoved = (_refused: { entry: number; native: number }) => true,
  ) => {
    const counts = { refused: { entry: 0, native: 0 }, changed: 0, faults: [] as string[] };
    const untilChanged = (count: number) =>
      waitUntil("clients could not write", () => counts.faults.length > 0 || counts.changed >= count);
    let isOver = false;
    const work = async () => {
      while (!isOver) {
        const [refused, changed] = [await write({}), await write({ team: "a" })];
        const message = String(refused.body.message);
        if (!message.endsWith("denied request: no label")) counts.faults.push(`${refused.code} ${message}`);
        else counts.refused[message.startsWith("admission webhook") ? "entry" : "native"] += 1;
        if (changed.code !== 201 || !hasAddedData(changed.body)) counts.faults.push(JSON.stringify(changed.body));
        else counts.changed += 1;
      }
    };
    const clients = Array.from({ length: 8 }, work);
    try {
      await untilChanged(50);
      await act();
      await untilChanged(counts.changed + 400);
      await waitUntil("one side refused nothing", () => counts.faults.length > 0 || isMoved(counts.refused));
    } finally {
      isOver = true;
      await Promise.all(clients);
    }
    assert.deepEqual(counts.faults, []);
  };
  const isMoved = ({ entry, native }: { entry: number; native: number }) => entry > 10 && native > 10;
  const listKinds = async () => {
    const objects = (await readAll()).map(({ kind }) => kind);
    return [...new Set(objects)].sort();
  };
  const readAll = async (): Promise<DeployedObject[]> => {
    const kinds = ["AdmissionPolicy", "AdmissionPolicyBinding", "WebhookConfiguration"].flatMap(
      (kind) => [`Mutating${kind}`, `Validating${kind}`] as DeployedObject["kind"][],
    );
    return (await Promise.all(kinds.map((kind) => api.list(kind)))).flat();
  };

  const configurations = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];
  const validating = ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"];
  const mutating = ["MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"];

  it("policies move from entries into the older API server, if it can evaluate them, and back", async () => {
    const support = await readPolicySupport(api);
    assert.equal(support.kubernetes, older);
    await apply(buildWanted());
    await untilEffective();
    assert.deepEqual(await listKinds(), configurations);
    await writeDuring(
      async () =>
        assert.deepEqual(await apply(buildWanted(support)), [
          "made ValidatingAdmissionPolicy",
          "made ValidatingAdmissionPolicyBinding",
          "changed ValidatingWebhookConfiguration",
        ]),
      isMoved,
    );
    assert.deepEqual(await listKinds(), [...configurations, ...validating].sort());
    assert.deepEqual(await listSentences(buildWanted(support)), []);
    await writeDuring(
      async () =>
        assert.deepEqual(await apply(buildWanted()), [
          "changed ValidatingWebhookConfiguration",
          "removed ValidatingAdmissionPolicyBinding",
          "removed ValidatingAdmissionPolicy",
        ]),
      isMoved,
    );
    await apply(buildWanted(support));
  });

  it("all policies move into the API server and back after the upgrade, also mutating policies", async () => {
    const store = join(folder, "data");
    await cluster.stopAndCopyData(store);
    await boot(newer, store);
    const support = await readPolicySupport(api);
    assert.equal(support.kubernetes, newer);
    assert.deepEqual(await listKinds(), [...configurations, ...validating].sort());
    await untilEffective();
    await writeDuring(async () =>
      assert.deepEqual(await apply(buildWanted(support)), [
        "made MutatingAdmissionPolicy",
        "made MutatingAdmissionPolicyBinding",
        "changed MutatingWebhookConfiguration",
      ]),
    );
    assert.deepEqual(await listKinds(), [...configurations, ...mutating, ...validating].sort());
    await writeDuring(async () => void (await apply(buildWanted())));
    assert.deepEqual(await listKinds(), configurations);
    await writeDuring(async () => void (await apply(buildWanted(support))));
    assert.deepEqual(await listKinds(), [...configurations, ...mutating, ...validating].sort());
  });

  it("policies in the API server have labels, and are corrected after an edit there", async () => {
    const wanted = buildWanted(await readPolicySupport(api));
    const [policy] = (await readAll()).filter(({ kind }) => kind === "ValidatingAdmissionPolicy");
    assert.ok(policy);
    assert.deepEqual(policy.metadata.labels, {
      "app.kubernetes.io/instance": "postern",
      "app.kubernetes.io/managed-by": "postern",
      "postern.dev/rule": "validating-admission-policy",
    });
    const metadata = { ...policy.metadata, labels: { team: "a" } };
    assert.ok(await api.replace({ ...policy, metadata, spec: { ...Object(policy.spec), failurePolicy: "Ignore" } }));
    assert.deepEqual(await listSentences(wanted), [
      "ValidatingAdmissionPolicy postern.require-label: label app.kubernetes.io/instance is missing",
      "ValidatingAdmissionPolicy postern.require-label: label app.kubernetes.io/managed-by is missing",
      "ValidatingAdmissionPolicy postern.require-label: label postern.dev/rule is missing",
      "ValidatingAdmissionPolicy postern.require-label: spec.failurePolicy is Ignore, not Fail",
    ]);
    assert.deepEqual(await apply(wanted), ["changed ValidatingAdmissionPolicy"]);
    assert.deepEqual(await listSentences(wanted), []);
  });

  it("policies are updated in the API server after a change in postern.yaml", async () => {
    yaml = buildYaml(buildPolicies("owner", ["Warn"]));
    const wanted = buildWanted(await readPolicySupport(api));
    assert.deepEqual(await apply(wanted), [
      "changed ValidatingAdmissionPolicy",
      "changed ValidatingAdmissionPolicyBinding",
    ]);
    await waitUntil("the change has no effect", async () => (await write({ team: "a" })).code === 201);
  });

  it("policies are removed even if their labels are gone; other policies with similar names are kept", async () => {
    const [policy] = (await readAll()).filter(({ kind }) => kind === "ValidatingAdmissionPolicy");
    assert.ok(policy);
    assert.ok(await api.replace({ ...policy, metadata: { ...policy.metadata, labels: {} } }));
    const { apiVersion, kind, spec, metadata } = policy;
    await api.apply({ apiVersion, kind, metadata: { name: "postern.other", labels: metadata.labels ?? {} }, spec });
    const staging = { name: "staging.require-label", annotations: metadata.annotations ?? {} };
    await api.apply({ apiVersion, kind, metadata: staging, spec });
    assert.deepEqual(await listSentences([]), [
      "ValidatingWebhookConfiguration postern should not be there",
      "ValidatingAdmissionPolicyBinding postern.require-label should not be there",
      "ValidatingAdmissionPolicy postern.require-label should not be there",
      "MutatingWebhookConfiguration postern should not be there",
      "MutatingAdmissionPolicyBinding postern.add-data should not be there",
      "MutatingAdmissionPolicy postern.add-data should not be there",
    ]);
    assert.equal((await deletePosternObjects(api, name)).length, 6);
    assert.deepEqual((await readAll()).map((object) => object.metadata.name).sort(), [
      "postern.other",
      "staging.require-label",
    ]);
    assert.deepEqual(await deletePosternObjects(api, name), []);
  });
});

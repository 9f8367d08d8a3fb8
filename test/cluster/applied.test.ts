import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import { createServer as createSecureServer } from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, beforeEach, describe, it } from "node:test";
import jsonPatch, { type Operation } from "fast-json-patch";
import { createLiveCapabilities } from "#lib/cluster/live-capabilities.ts";
import { requireValidReview } from "#lib/review.ts";
import type { RequestMatch } from "#lib/rule.ts";
import { readCatalogue } from "../../infra/catalogue/registry.ts";
import { Complaint } from "../../infra/cli/complaint.ts";
import { type ClusterCredentialOptions, openClusterApi, readEksServerAndCa } from "../../infra/clusters/access.ts";
import type { ClusterApi, DeployedKind, DeployedObject, ObjectReference } from "../../infra/clusters/api.ts";
import {
  applyRbacObjects,
  applyWantedObjectsToCluster,
  type DeployedObjectChange,
  deletePosternObjects,
  findDifferences,
  findEntriesCallingUrls,
  listRulesCalledByEntries,
} from "../../infra/clusters/apply.ts";
import { buildProbeReview, probeEndpoint, probeEntries } from "../../infra/clusters/probe.ts";
import type { ClusterConnectConfig } from "../../infra/config/config.ts";
import { readOrCreateServerCertificate, type ServerCertificate } from "../../infra/keys/keys.ts";
import { parseConfig } from "../../infra/project/project.ts";
import { buildWebhookConfigurations } from "../../infra/webhooks/configurations.ts";
import { buildFunctionRbacObjects } from "../../infra/webhooks/rbac.ts";
import { startMoto } from "../aws/moto.ts";
import { buildKubeconfig } from "../checkout.ts";
import { requireBinaries } from "../control-plane/binaries.ts";
import { bootCluster, type TestCluster } from "../control-plane/cluster.ts";
import { findFreePort } from "../control-plane/process.ts";
import { listen } from "../listen.ts";
import { serveCatalogueForTests, waitUntil } from "../parity/rule-server.ts";
import { needs } from "../parts.ts";
import { readRows } from "../rows.ts";
import { openFaulty } from "./faults.ts";

// A deployment creates objects in a real cluster, compares them with the wanted ones, corrects them and deletes them.

const catalogue = await readCatalogue();
const folder = await mkdtemp(join(tmpdir(), "postern-applied-"));
const certificate = await readOrCreateServerCertificate(folder, "127.0.0.1");
const otherCertificate = await readOrCreateServerCertificate(await mkdtemp(join(folder, "other-")), "127.0.0.1");
after(() => rm(folder, { recursive: true, force: true }));

/** A key has the form of a signature in base64url: 86 characters. */
const key = "k".repeat(86);
const base = "https://rules.example.com/base";

/** The tables of applied.test.yaml, with names in place of the values of this run. */
const rowsWithPlaceholders = readRows<{
  edits: {
    edits: string;
    of: "mutating" | "validating" | "account" | "role" | "binding";
    patch: Operation[];
    says: string;
  }[];
  unreachable: {
    because: string;
    connect?: ClusterConnectConfig;
    deployer?: ClusterCredentialOptions;
    identity?: true;
    says: string;
  }[];
  requests: { match: RequestMatch; fields: Record<string, unknown> }[];
  faulty: { endpoint: string; status?: number; body: string; says: string; tries: number }[];
}>(import.meta.filename);
const toBase64 = (pem: string) => Buffer.from(pem).toString("base64");
/** The texts in the tables that are replaced by values of this run. */
const placeholders = {
  OTHER_KEY: "j".repeat(86),
  KEY: key,
  BASE: base,
  OTHER_CA: toBase64(otherCertificate.ca),
  // A sentence about a difference shows only the beginning of a long value.
  OWN_CA: toBase64(certificate.ca).slice(0, 159),
};
let rowsText = JSON.stringify(rowsWithPlaceholders);
for (const [name, value] of Object.entries(placeholders)) rowsText = rowsText.replaceAll(name, value);
const rows: typeof rowsWithPlaceholders = JSON.parse(rowsText);

/** Returns all objects that a deployment with these rules creates in a cluster. */
const buildWanted = (
  rules: object,
  { connect = withToken, name = "postern" }: { connect?: object; name?: string } = {},
) => {
  const yaml = JSON.stringify({ clusters: { local: { rules, connect } } });
  const [cluster] = parseConfig(yaml, catalogue).clusters.values();
  assert.ok(cluster);
  const address = (rule: string, path: string) => `${base}/local.${key}/${rule}/${path}`;
  const options = { name, address, ca: certificate.ca, harden: false };
  return [
    ...buildWebhookConfigurations(catalogue, cluster, options),
    ...buildFunctionRbacObjects(catalogue, cluster, name),
  ];
};
const withToken = { server: "https://127.0.0.1:1", tokenSecret: "postern", region: "eu-west-1" };
const usualRules = {
  "always-pull-images": { exempt: { users: ["system:admin"], namespaces: ["kube-system"] } },
  "limit-ranger": {},
  "deny-service-external-ips": { failurePolicy: "Fail" },
};

/**
 * Writes a kubeconfig whose context `here` is for a user; `change` replaces its address, its CA or its token. Returns
 * the path of the file.
 */
const writeKubeconfig = async (
  cluster: TestCluster,
  user: string,
  change: { server?: string; ca?: string; token?: string } = {},
) => {
  const { token = cluster.getToken(user), ...address } = change;
  const connection = { ...cluster, ...address, getToken: () => token };
  const file = join(await mkdtemp(join(folder, "kube-")), "config");
  // The first context is the current one. The cluster refuses its token, so that no test works by the current context
  // instead of the chosen context `here`.
  const current = { ...connection, getToken: () => "refused" };
  await writeFile(file, buildKubeconfig({ current, here: connection }));
  return file;
};

/** Returns a check for assert.rejects: a Complaint with this sentence, which doesn't reveal the secret key in URLs. */
const expectComplaint = (sentence: RegExp | string) => (error: unknown) => {
  assert.ok(error instanceof Complaint, String(error instanceof Error ? error.stack : error));
  if (typeof sentence === "string") assert.equal(error.message, sentence);
  else assert.match(error.message, sentence);
  assert.ok(!error.message.includes(key));
  return true;
};

describe("the objects of a deployment", await needs("API server"), () => {
  let cluster: TestCluster;
  let api: ClusterApi;
  const open = async (user: string, change: Parameters<typeof writeKubeconfig>[2] = {}) =>
    openClusterApi("prod-eu", undefined, { kubeconfig: await writeKubeconfig(cluster, user, change), context: "here" });

  before(async () => {
    const binaries = await requireBinaries();
    cluster = await bootCluster(binaries, {
      rbac: true,
      users: { stranger: ["strangers"], deployer: ["deployers"], deployers: ["system:masters"] },
    });
    api = await open("deployers");
  });
  after(() => cluster?.stop());
  beforeEach(async () => {
    await deletePosternObjects(api, "postern");
  });

  const mutating: ObjectReference = { kind: "MutatingWebhookConfiguration", name: "postern" };
  const validating: ObjectReference = { kind: "ValidatingWebhookConfiguration", name: "postern" };
  const role: ObjectReference = { kind: "ClusterRole", name: "postern:limit-ranger" };
  const binding: ObjectReference = { kind: "ClusterRoleBinding", name: "postern:limit-ranger" };
  const account: ObjectReference = { kind: "ServiceAccount", name: "postern", namespace: "kube-system" };
  const secret: ObjectReference = { kind: "Secret", name: "postern-token", namespace: "kube-system" };
  const allReferences = [mutating, validating, role, binding, account, secret];

  const getLive = async (ref: ObjectReference): Promise<DeployedObject> => {
    const object = await api.get(ref);
    assert.ok(object, `${ref.kind} ${ref.name} is there`);
    return object;
  };
  const listResourceVersions = () =>
    Promise.all(allReferences.map(async (ref) => (await getLive(ref)).metadata.resourceVersion));
  const deployRules = (rules: object) => applyWantedObjectsToCluster(api, buildWanted(rules), "postern");
  const listDifferences = async (rules: object) =>
    (await findDifferences(api, buildWanted(rules), "postern")).map(({ sentence }) => sentence);
  const formatChanges = (changes: { did: string; kind: DeployedKind; name: string }[]) =>
    changes.map(({ did, kind, name }) => `${did} ${kind} ${name}`);

  const getPaths = ({ kind, name, namespace }: ObjectReference) => {
    const getRoot = () => {
      if (kind.includes("Webhook")) return "/apis/admissionregistration.k8s.io/v1";
      if (kind.startsWith("Cluster")) return "/apis/rbac.authorization.k8s.io/v1";
      return `/api/v1/namespaces/${namespace}`;
    };
    const collection = `${getRoot()}/${kind.toLowerCase()}s`;
    return { collection, object: `${collection}/${name}` };
  };
  /** Updates an object as kubectl edit does. */
  const edit = async (ref: ObjectReference, change: (object: any) => void) => {
    const object = await getLive(ref);
    change(object);
    const path = `${getPaths(ref).object}?fieldManager=kubectl-edit`;
    const { code, body } = await cluster.admin({ method: "PUT", path, body: object });
    assert.equal(code, 200, String(body.message));
  };
  const create = async (ref: ObjectReference, object: object, query = "") => {
    const path = `${getPaths(ref).collection}${query}`;
    const { code, body } = await cluster.admin({ method: "POST", path, body: object });
    assert.equal(code, 201, String(body.message));
  };
  const deleteObject = (ref: ObjectReference) => cluster.admin({ method: "DELETE", path: getPaths(ref).object });

  it("the objects of a deployment are created once, and roles are created before webhook configurations", async () => {
    assert.deepEqual(await listDifferences(usualRules), [
      "ServiceAccount postern in namespace kube-system is missing",
      "Secret postern-token in namespace kube-system is missing",
      "ClusterRole postern:limit-ranger is missing",
      "ClusterRoleBinding postern:limit-ranger is missing",
      "mutating entry limit-ranger.postern.dev is missing",
      "mutating entry always-pull-images.postern.dev is missing",
      "validating entry limit-ranger.postern.dev is missing",
      "validating entry always-pull-images.postern.dev is missing",
      "validating entry deny-service-external-ips.postern.dev is missing",
    ]);
    const changes = await deployRules(usualRules);
    assert.deepEqual(formatChanges(changes), [
      "made ServiceAccount postern",
      "made Secret postern-token",
      "made ClusterRole postern:limit-ranger",
      "made ClusterRoleBinding postern:limit-ranger",
      "made MutatingWebhookConfiguration postern",
      "made ValidatingWebhookConfiguration postern",
    ]);
    const before = await listResourceVersions();
    assert.deepEqual(await listDifferences(usualRules), []);
    assert.deepEqual(await deployRules(usualRules), []);
    assert.deepEqual(await listResourceVersions(), before);
  });

  it("a deployment can create its objects in two steps: first service account and roles, then webhooks", async () => {
    assert.deepEqual(formatChanges(await applyRbacObjects(api, buildWanted(usualRules))), [
      "made ServiceAccount postern",
      "made Secret postern-token",
      "made ClusterRole postern:limit-ranger",
      "made ClusterRoleBinding postern:limit-ranger",
    ]);
    assert.deepEqual(await applyRbacObjects(api, buildWanted({ "always-pull-images": {} })), []);
    assert.ok(await api.get(role));
    assert.equal((await deployRules(usualRules)).length, 2);
  });

  describe("objects of a deployment after an edit", () => {
    const entry = "always-pull-images.postern.dev";
    const edited = { mutating, validating, account, role, binding };
    for (const { edits: name, of, patch, says } of rows.edits)
      it(`edited objects of a deployment are reported and corrected: ${name}`, async () => {
        const ref = edited[of];
        await deployRules(usualRules);
        const { metadata: _, ...original } = await getLive(ref);
        await edit(ref, (object) => jsonPatch.applyPatch(object, patch));
        assert.deepEqual(await listDifferences(usualRules), [says]);
        assert.deepEqual(formatChanges(await deployRules(usualRules)), [`changed ${ref.kind} ${ref.name}`]);
        assert.deepEqual(await listDifferences(usualRules), []);
        const { metadata: __, ...corrected } = await getLive(ref);
        assert.deepEqual(corrected, original);
      });

    it("an edited roleRef of a deployment's binding, which is immutable, is reported and corrected", async () => {
      await deployRules(usualRules);
      const { roleRef, metadata, ...rest } = await getLive(binding);
      await deleteObject(binding);
      const otherRoleRef = { ...Object(roleRef), name: "cluster-admin" };
      const { name, labels } = metadata;
      await create(binding, { ...rest, metadata: { name, labels }, roleRef: otherRoleRef });
      assert.deepEqual(await listDifferences(usualRules), [
        "ClusterRoleBinding postern:limit-ranger: roleRef.name is cluster-admin, not postern:limit-ranger",
      ]);
      assert.deepEqual(formatChanges(await deployRules(usualRules)), [`changed ${binding.kind} ${binding.name}`]);
      assert.deepEqual((await getLive(binding)).roleRef, roleRef);
      assert.deepEqual(await listDifferences(usualRules), []);
    });

    it("fields that another field manager has set by server-side apply are reported and corrected", async () => {
      await deployRules(usualRules);
      const [, second] = Object((await getLive(mutating)).webhooks);
      const webhooks = [
        { name: entry, objectSelector: { matchLabels: { a: "b" } } },
        { ...second, name: "x.example.com" },
      ];
      const apiVersion = "admissionregistration.k8s.io/v1";
      const body = { apiVersion, kind: mutating.kind, metadata: { name: "postern" }, webhooks };
      const path = `${getPaths(mutating).object}?fieldManager=flux&force=true`;
      const contentType = "application/apply-patch+yaml";
      const { code, body: answer } = await cluster.admin({ method: "PATCH", path, body, contentType });
      assert.equal(code, 200, String(answer.message));
      assert.deepEqual(await listDifferences(usualRules), [
        `mutating entry ${entry}: objectSelector.matchLabels is {"a":"b"}, but should not be set`,
        "mutating entry x.example.com should not be there",
      ]);
      await deployRules(usualRules);
      assert.deepEqual(await listDifferences(usualRules), []);
    });

    for (const ref of allReferences)
      it(`a deleted ${ref.kind} of a deployment is reported and created again`, async () => {
        await deployRules(usualRules);
        await deleteObject(ref);
        const sentences = await listDifferences(usualRules);
        assert.ok(
          sentences.length > 0 && sentences.every((sentence) => sentence.endsWith(" is missing")),
          sentences.join(),
        );
        assert.deepEqual(formatChanges(await deployRules(usualRules)), [`made ${ref.kind} ${ref.name}`]);
        assert.deepEqual(await listDifferences(usualRules), []);
      });
  });

  it("the objects of a deployment keep labels and annotations of other programs, and controllers' fields", async () => {
    await deployRules(usualRules);
    await edit(mutating, ({ metadata }) => {
      metadata.labels.team = "a";
      metadata.annotations = { note: "b" };
    });
    await edit(secret, (object) => Object.assign(object, { data: { token: "eA==" } }));
    assert.deepEqual(await listDifferences(usualRules), []);
    await edit(mutating, ({ webhooks }) => webhooks.pop());
    await edit(secret, ({ metadata }) => delete metadata.labels);
    assert.equal((await deployRules(usualRules)).length, 2);
    const { metadata } = await getLive(mutating);
    assert.deepEqual([metadata.labels?.team, metadata.annotations?.note], ["a", "b"]);
    assert.deepEqual((await getLive(secret)).data, { token: "eA==" });
  });

  it("a deployment changes objects that kubectl apply has created", async () => {
    const objects = buildWanted(usualRules) as DeployedObject[];
    const annotation = "kubectl.kubernetes.io/last-applied-configuration";
    for (const object of objects) {
      const { kind, metadata } = object;
      const annotations = { ...metadata.annotations, [annotation]: JSON.stringify(object) };
      const { name, namespace } = metadata;
      const body = { ...object, metadata: { ...metadata, annotations } };
      await create({ kind, name, ...(namespace && { namespace }) }, body, "?fieldManager=kubectl-client-side-apply");
    }
    assert.deepEqual(await listDifferences(usualRules), []);
    assert.deepEqual(await deployRules(usualRules), []);
    const fewer = { "always-pull-images": { mode: "warn" }, "limit-ranger": { timeoutSeconds: 2 } };
    await deployRules(fewer);
    assert.deepEqual(await listDifferences(fewer), []);
    for (const ref of [mutating, validating])
      assert.deepEqual(
        Object((await getLive(ref)).webhooks).map(({ name }: { name: string }) => name),
        ["limit-ranger.postern.dev", "always-pull-images.postern.dev"],
      );
  });

  it("objects that no rule needs any more are deleted, roles after webhook entries", async () => {
    await deployRules(usualRules);
    const fewer = { "deny-service-external-ips": {} };
    assert.deepEqual(await listDifferences(fewer), [
      "mutating entry limit-ranger.postern.dev should not be there",
      "mutating entry always-pull-images.postern.dev should not be there",
      "validating entry deny-service-external-ips.postern.dev: failurePolicy is Fail, not Ignore",
      'validating entry deny-service-external-ips.postern.dev: namespaceSelector.matchExpressions is [{"key":"kubernetes.io/metadata.name","operator":"NotIn","values":["kube-system","kube-node-lease"]}], but should not be set',
      "validating entry limit-ranger.postern.dev should not be there",
      "validating entry always-pull-images.postern.dev should not be there",
      "ClusterRoleBinding postern:limit-ranger should not be there",
      "ClusterRole postern:limit-ranger should not be there",
    ]);
    assert.deepEqual(formatChanges(await deployRules(fewer)), [
      "changed ValidatingWebhookConfiguration postern",
      "changed MutatingWebhookConfiguration postern",
      "removed ClusterRoleBinding postern:limit-ranger",
      "removed ClusterRole postern:limit-ranger",
    ]);
    assert.deepEqual(await listDifferences(fewer), []);
    assert.deepEqual((await getLive(mutating)).webhooks ?? [], []);
  });

  it("all objects of a deployment are deleted, webhook configurations first, but no objects of others", async () => {
    await deployRules(usualRules);
    await applyWantedObjectsToCluster(api, buildWanted(usualRules, { name: "staging" }), "staging");
    const metadata = { name: "postern:mine" };
    const roleOfUser = { apiVersion: "rbac.authorization.k8s.io/v1", kind: "ClusterRole", metadata, rules: [] };
    await create(role, roleOfUser);
    const listRemovals = (name: string) => [
      `removed ValidatingWebhookConfiguration ${name}`,
      `removed MutatingWebhookConfiguration ${name}`,
      `removed ClusterRoleBinding ${name}:limit-ranger`,
      `removed ClusterRole ${name}:limit-ranger`,
      `removed Secret ${name}-token`,
      `removed ServiceAccount ${name}`,
    ];
    assert.deepEqual(formatChanges(await deletePosternObjects(api, "postern")), listRemovals("postern"));
    assert.ok(await api.get({ ...account, name: "staging" }));
    assert.deepEqual(await findDifferences(api, buildWanted(usualRules, { name: "staging" }), "staging"), []);
    assert.deepEqual(formatChanges(await deletePosternObjects(api, "staging")), listRemovals("staging"));
    assert.deepEqual(await deletePosternObjects(api, "staging"), []);
    await getLive({ ...role, name: "postern:mine" });
    await deleteObject({ ...role, name: "postern:mine" });
  });

  it("the validating entry of a rule is created last and deleted first", async () => {
    const rules = { "always-pull-images": {} };
    const listOrder = async (act: () => Promise<DeployedObjectChange[]>) =>
      formatChanges(await act()).map((change) => change.split(" ").slice(0, 2).join(" "));
    assert.deepEqual(await listOrder(() => deployRules(rules)), [
      "made MutatingWebhookConfiguration",
      "made ValidatingWebhookConfiguration",
    ]);
    const changed = { "deny-service-external-ips": {}, "default-toleration-seconds": {} };
    assert.deepEqual(await listOrder(() => deployRules(changed)), [
      "changed ValidatingWebhookConfiguration",
      "changed MutatingWebhookConfiguration",
    ]);
    assert.deepEqual(await listDifferences(changed), []);
    await deletePosternObjects(api, "postern");
  });

  it("a deployment's objects can be deleted even if an entry without an endpoint refuses every write", async () => {
    const rules = { ...usualRules, "always-deny": { failurePolicy: "Fail", exempt: { namespaces: [] } } };
    await deployRules(rules);
    await waitUntil("the API server did not call by the new entry", async () => {
      const path = "/api/v1/namespaces/default/configmaps?dryRun=All";
      return (await cluster.admin({ method: "POST", path, body: { metadata: { name: "a" } } })).code === 500;
    });
    assert.equal((await deletePosternObjects(api, "postern")).length, 6);
    assert.deepEqual(await deletePosternObjects(api, "postern"), []);
  });

  it("a webhook configuration with the deployment's name but without Postern's entries isn't deleted", async () => {
    const [configuration] = buildWanted(usualRules) as DeployedObject[];
    const webhooks = Object(configuration?.webhooks)
      .map((entry: object) => ({ ...entry, name: "x.example.com" }))
      .slice(0, 1);
    await create(mutating, { ...configuration, metadata: { name: "postern" }, webhooks });
    assert.deepEqual(await deletePosternObjects(api, "postern"), []);
    assert.deepEqual(await findDifferences(api, [], "postern"), []);
    await deleteObject(mutating);
  });

  it("the entries of a deployment are found in all webhook configurations by the URLs that they call", async () => {
    await deployRules({ "deny-service-external-ips": {} });
    const urls = {
      "same.example.com": `HTTPS://Rules.Example.com:443/base/prod.${key}/x/validate`,
      "longer.example.com": `https://rules.example.com/basement/prod.${key}/x/validate`,
      "outside.example.com": `https://rules.example.com/prod.${key}/x/validate`,
      "port.example.com": `https://rules.example.com:8443/base/prod.${key}/x/validate`,
      "host.example.com": `https://rules.example.com.example.net/base/prod.${key}/x/validate`,
    };
    const [, { webhooks: [entry] = [] } = {}] = selectConfigurations(buildWanted({ "deny-service-external-ips": {} }));
    const webhooks = [
      ...Object.entries(urls).map(([name, url]) => ({ ...entry, name, clientConfig: { url } })),
      { ...entry, name: "service.example.com", clientConfig: { service: { name: "a", namespace: "b" } } },
    ];
    const foreign = { ...validating, name: "foreign" };
    const [apiVersion, metadata] = ["admissionregistration.k8s.io/v1", { name: "foreign" }];
    await create(foreign, { apiVersion, kind: foreign.kind, metadata, webhooks });
    const urlsOfPostern = ["https://rules.example.com/base/", "https://none.example.com", "no address"];
    const entries = await findEntriesCallingUrls(api, urlsOfPostern);
    assert.deepEqual(
      entries.sort((left, right) => left.name.localeCompare(right.name)),
      [
        { kind: foreign.kind, name: "foreign", entry: "same.example.com" },
        { kind: foreign.kind, name: "postern", entry: "deny-service-external-ips.postern.dev" },
      ],
    );
    assert.deepEqual((await findEntriesCallingUrls(api, ["https://RULES.example.com"])).length, 4);
    await deleteObject(foreign);
  });

  it("the objects of a deployment are all found, even if the API server lists them in pages", async () => {
    const names = Array.from({ length: 260 }, (_, index) => `staging:${index}`);
    const metadata = { labels: { "app.kubernetes.io/managed-by": "postern" } };
    await Promise.all(names.map((name) => create(role, { metadata: { ...metadata, name } })));
    assert.equal((await findDifferences(api, [], "staging")).length, names.length);
    await Promise.all(names.map((name) => deleteObject({ ...role, name })));
  });

  describe("the deployer", () => {
    it("the deployer gets an error that names the deployer's missing rights", async () => {
      const stranger = await open("stranger");
      await assert.rejects(
        applyWantedObjectsToCluster(stranger, buildWanted({ "deny-service-external-ips": {} }), "postern"),
        expectComplaint(
          'cluster prod-eu: the API server refuses to show the MutatingWebhookConfiguration postern (403): mutatingwebhookconfigurations.admissionregistration.k8s.io "postern" is forbidden: User "stranger" cannot get resource "mutatingwebhookconfigurations" in API group "admissionregistration.k8s.io" at the cluster scope; give this right to the user, for instance by RBAC',
        ),
      );
      await assert.rejects(
        findEntriesCallingUrls(stranger, [base]),
        expectComplaint(/refuses to list every \w+ \(403\): .*; give this right/),
      );
      await assert.rejects(deletePosternObjects(stranger, "postern"), expectComplaint(/\(403\): /));
    });

    it("the deployer gets an error with a remedy if it can't grant rights that it lacks", async () => {
      const verbs = ["get", "list", "create", "update", "patch"];
      const rules = [
        { apiGroups: ["rbac.authorization.k8s.io"], resources: ["*"], verbs },
        { apiGroups: [""], resources: ["*"], verbs: ["get", "create", "patch"] },
      ];
      const subjects = [{ kind: "Group", name: "deployers", apiGroup: "rbac.authorization.k8s.io" }];
      const roleRef = { kind: "ClusterRole", name: "deployers", apiGroup: "rbac.authorization.k8s.io" };
      const refs = [
        { ...role, name: "deployers" },
        { ...binding, name: "deployers" },
      ] as const;
      await create(refs[0], { metadata: { name: "deployers" }, rules });
      await create(refs[1], { metadata: { name: "deployers" }, subjects, roleRef });
      const deployer = await open("deployer");
      await assert.rejects(
        applyWantedObjectsToCluster(deployer, buildWanted({ "limit-ranger": {} }), "postern"),
        expectComplaint(
          /^cluster prod-eu: the API server refuses to store the ClusterRole postern:limit-ranger \(403\): .* attempting to grant RBAC permissions not currently held: .*; the user must have these rights too, or the verb escalate on clusterroles$/,
        ),
      );
      for (const ref of refs) await deleteObject(ref);
    });

    it("the deployer needs no right to policies if it deploys no policies", async () => {
      const rights = [
        ["admissionregistration.k8s.io", "validatingwebhookconfigurations"],
        ["admissionregistration.k8s.io", "mutatingwebhookconfigurations"],
        ["rbac.authorization.k8s.io", "clusterroles"],
        ["rbac.authorization.k8s.io", "clusterrolebindings"],
        ...["secrets", "serviceaccounts"].map((resource) => ["", resource]),
      ];
      const rules = rights.map(([group, resource]) => ({ apiGroups: [group], resources: [resource], verbs: ["*"] }));
      const roleRef = { kind: "ClusterRole", name: "deployers", apiGroup: "rbac.authorization.k8s.io" };
      const subjects = [{ kind: "Group", name: "deployers", apiGroup: "rbac.authorization.k8s.io" }];
      await create({ ...role, name: "deployers" }, { metadata: { name: "deployers" }, rules });
      await create({ ...binding, name: "deployers" }, { metadata: { name: "deployers" }, subjects, roleRef });
      const deployer = await open("deployer");
      await waitUntil("the deployer has no rights", () => deployer.list("ClusterRole").then(Boolean, () => false));
      const wanted = buildWanted({ "deny-service-external-ips": {} });
      assert.equal((await applyWantedObjectsToCluster(deployer, wanted, "postern")).length, 2);
      assert.deepEqual(await findDifferences(deployer, wanted, "postern"), []);
      assert.equal((await deletePosternObjects(deployer, "postern")).length, 2);
      for (const ref of [role, binding]) await deleteObject({ ...ref, name: "deployers" });
    });

    it("the deployer gets an error if its token is unknown", async () => {
      const unknown = await open("deployers", { token: "wrong" });
      await assert.rejects(
        findDifferences(unknown, [], "postern"),
        expectComplaint(
          /^cluster prod-eu: the API server doesn't accept the credentials \(401: Unauthorized\); the token or certificate in \S+ may have expired; renew it$/,
        ),
      );
    });

    it("the deployer gets the API server's reason for a refusal", async () => {
      const [, configuration] = selectConfigurations(buildWanted({ "deny-service-external-ips": {} }));
      assert.ok(configuration);
      const clientConfig = { url: `http://x/local.${key}/a` };
      const webhooks = configuration.webhooks.map((entry) => ({ ...entry, clientConfig }));
      await assert.rejects(
        applyWantedObjectsToCluster(api, [{ ...configuration, webhooks }], "postern"),
        expectComplaint(
          /^cluster prod-eu: the API server refuses to store the ValidatingWebhookConfiguration postern \(422\): .*clientConfig\.url: .*'https' is the only allowed URL scheme/,
        ),
      );
    });

    it("the deployer gets an error if there is no server at the address", async () => {
      const port = await findFreePort();
      const unreachable = await open("deployers", { server: `https://127.0.0.1:${port}` });
      await assert.rejects(
        findEntriesCallingUrls(unreachable, [base]),
        expectComplaint(
          `cluster prod-eu: the API server at https://127.0.0.1:${port} can't be reached: connect ECONNREFUSED 127.0.0.1:${port}`,
        ),
      );
    });

    it("the deployer gets an error if another server is at the address", async () => {
      const otherServer = await open("deployers", { ca: otherCertificate.ca });
      await assert.rejects(
        deletePosternObjects(otherServer, "postern"),
        expectComplaint(
          /^cluster prod-eu: the API server at https:\S+ can't be reached: .*; its ca must be the one that signed its certificate$/,
        ),
      );
    });

    describe("a deployer whose connection fails", () => {
      let proxy: Awaited<ReturnType<typeof openFaulty>>;
      let faulty: ClusterApi;
      before(async () => {
        proxy = await openFaulty(cluster, certificate);
        faulty = await open("deployers", { server: proxy.url, ca: certificate.ca });
      });
      after(() => proxy?.stop());

      it("the deployer repeats reads and writes that fail because the connection is stale", async () => {
        const [, configuration] = selectConfigurations(buildWanted({ "deny-service-external-ips": {} }));
        assert.ok(configuration);
        for (const act of [
          () => faulty.get(validating),
          () => faulty.apply(configuration as DeployedObject),
          () => faulty.remove(validating),
        ]) {
          await faulty.get(mutating);
          proxy.goStale();
          await act();
        }
        assert.equal(await faulty.get(validating), undefined);
      });
      it("the deployer repeats a failed read once", async () => {
        for (const fault of [{ broken: "before" as const }, { status: 503 }, { status: 429 }]) {
          proxy.faults.push(fault);
          assert.equal(await faulty.get(validating), undefined);
          proxy.faults.push(fault, fault);
          await assert.rejects(faulty.get(validating), expectComplaint(/^cluster prod-eu/));
        }
      });
      it("the deployer refuses responses that are not from an API server", async () => {
        for (const body of ["<html>", '{"kind":"Status"}', "[]", "null"]) {
          proxy.faults.push({ status: 200, body });
          await assert.rejects(
            faulty.get(validating),
            expectComplaint(/ has an answer \(200\) that is not from an API server: /),
          );
        }
        proxy.faults.push({ status: 404, body: "404 page not found" });
        await assert.rejects(faulty.get(validating), expectComplaint(/\(404\): 404 page not found$/));
        const failing = { status: 500, body: '{"message":"etcd has no leader"}' };
        proxy.faults.push(failing, failing);
        const sentence = / the API server fails to show .* \(500\): etcd has no leader$/;
        await assert.rejects(faulty.get(validating), expectComplaint(sentence));
      });
      it("the deployer deletes objects although the API server still calls a webhook that was deleted", async () => {
        const rights = buildWanted(usualRules, { connect: { eks: "a", region: "eu-west-1" } }).slice(2);
        assert.equal((await applyWantedObjectsToCluster(api, rights, "postern")).length, 2);
        const message =
          'Internal error occurred: failed calling webhook "always-deny.postern.dev": failed to call webhook';
        const failing = { status: 500, body: JSON.stringify({ kind: "Status", message, code: 500 }) };
        // The deletion first reads two configurations and six lists.
        proxy.faults.push(...Array(8).fill({ milliseconds: 0 }), failing, failing);
        assert.equal((await deletePosternObjects(faulty, "postern")).length, 2);
        assert.equal(await api.get(binding), undefined);
      });
      it("the deployer tries again after a conflict", async () => {
        const rules = { "deny-service-external-ips": {} };
        await applyWantedObjectsToCluster(faulty, buildWanted(rules), "postern");
        await edit(validating, ({ webhooks }) => Object.assign(webhooks[0], { timeoutSeconds: 9 }));
        const conflict = { status: 409, body: JSON.stringify({ kind: "Status", reason: "Conflict", message: "x" }) };
        const noFault = { milliseconds: 0 };
        // These requests are sent: four reads; a read and a dry run for the mutating configuration; then for the
        // validating configuration a read and a dry run with a conflict, a read, a dry run, and a write with a
        // conflict.
        proxy.faults.push(...Array(7).fill(noFault), conflict, noFault, noFault, conflict);
        assert.equal((await applyWantedObjectsToCluster(faulty, buildWanted(rules), "postern")).length, 1);
        assert.deepEqual(await listDifferences(rules), []);
      });
    });
  });

  describe("an EKS cluster", () => {
    const readIdentity = async () => ({ accessKeyId: "AKID", secretAccessKey: "s", sessionToken: "t" });
    const connect = { eks: "prod", region: "eu-west-1" };
    const eksRequests: { authorization: string | undefined; path: string | undefined }[] = [];
    let eks: Server;
    let apiServer: ReturnType<typeof createSecureServer>;
    let address: string;
    before(async () => {
      apiServer = createSecureServer({ cert: certificate.cert, key: certificate.key }, ({ headers, url }, response) => {
        eksRequests.push({ authorization: headers.authorization, path: url });
        response.writeHead(401).end(JSON.stringify({ kind: "Status", message: "Unauthorized", code: 401 }));
      });
      address = `https://127.0.0.1:${await listen(apiServer)}`;
      eks = createServer(({ headers, url }, response) => {
        eksRequests.push({ authorization: headers.authorization, path: url });
        const [, name] = /^\/clusters\/(.*)$/.exec(url ?? "") ?? [];
        const certificateAuthority = { data: Buffer.from(certificate.ca).toString("base64") };
        const answers: Record<string, [number, object]> = {
          prod: [200, { cluster: { endpoint: address, certificateAuthority } }],
          young: [200, { cluster: { status: "CREATING" } }],
          secret: [403, { message: "User: x is not authorized to perform: eks:DescribeCluster" }],
        };
        const [status, body] = answers[name ?? ""] ?? [404, { message: `No cluster found for name: ${name}.` }];
        response.writeHead(status, { "x-amzn-requestid": "stand-in" }).end(JSON.stringify(body));
      });
      process.env.AWS_ENDPOINT_URL = "http://127.0.0.1:1";
      process.env.AWS_ENDPOINT_URL_EKS = `http://127.0.0.1:${await listen(eks)}`;
    });
    after(() => {
      for (const server of [eks, apiServer]) server?.close();
      for (const server of [eks, apiServer]) server?.closeAllConnections();
      delete process.env.AWS_ENDPOINT_URL;
      delete process.env.AWS_ENDPOINT_URL_EKS;
    });

    it("an EKS cluster is found by its name, and gets a token of the AWS identity", async () => {
      eksRequests.length = 0;
      const api = await openClusterApi("prod-eu", connect, { identity: readIdentity });
      assert.equal(api.server, address);
      await assert.rejects(
        api.get(mutating),
        expectComplaint(
          "cluster prod-eu: the API server doesn't accept the credentials (401: Unauthorized); give the AWS identity that deploys an access entry of the EKS cluster prod",
        ),
      );
      const [described, read] = eksRequests;
      assert.match(
        described?.authorization ?? "",
        /^AWS4-HMAC-SHA256 Credential=AKID\/\d{8}\/eu-west-1\/eks\/aws4_request, SignedHeaders=host;x-amz-date;x-amz-security-token, /,
      );
      const [, token = ""] = /^Bearer k8s-aws-v1\.(.*)$/.exec(read?.authorization ?? "") ?? [];
      const url = new URL(Buffer.from(token, "base64url").toString());
      assert.equal(url.host, "sts.eu-west-1.amazonaws.com");
      assert.equal(url.searchParams.get("Action"), "GetCallerIdentity");
      assert.equal(url.searchParams.get("X-Amz-SignedHeaders"), "host;x-k8s-aws-id");
    });
    it("an EKS cluster is not looked up in EKS if server and ca are set", async () => {
      eksRequests.length = 0;
      const api = await openClusterApi(
        "prod-eu",
        { ...connect, server: address, ca: "ca.crt" },
        { identity: readIdentity, folder },
      );
      await assert.rejects(api.get(mutating), expectComplaint(/\(401: /));
      assert.deepEqual(
        eksRequests.map(({ path }) => path),
        // After the answer 401, the request is sent again with a new token.
        Array(2).fill("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/postern"),
      );
    });
    it("an EKS cluster gives an error if it is missing, has no address yet, or may not be described", async () => {
      const describeCluster = (eks: string) => readEksServerAndCa({ ...connect, eks }, readIdentity);
      await assert.rejects(
        describeCluster("gone"),
        expectComplaint("EKS doesn't describe cluster gone in eu-west-1 (404): No cluster found for name: gone."),
      );
      await assert.rejects(
        describeCluster("young"),
        expectComplaint("the EKS cluster young in eu-west-1 has no address yet; its status is CREATING"),
      );
      await assert.rejects(
        describeCluster("secret"),
        expectComplaint(
          /\(403\): User: x is not authorized .*; allow eks:DescribeCluster, or name server and ca in its connect$/,
        ),
      );
      delete process.env.AWS_ENDPOINT_URL_EKS;
      await assert.rejects(
        describeCluster("prod"),
        expectComplaint(/^EKS can't be reached at http:\/\/127\.0\.0\.1:1: /),
      );
    });
  });

  describe("the entries of served rules", () => {
    it("the entries of all rules that need no settings and no ledger pass a deployment's probes", async () => {
      const openCapabilities = createLiveCapabilities({
        local: { server: cluster.server, ca: cluster.ca, credentials: { token: cluster.getToken("deployers") } },
      });
      // These rules need settings or a ledger.
      const excludedRules = [
        "image-policy-webhook",
        "event-rate-limit",
        "allowed-registries",
        "default-requests-and-limits",
        "initial-resources",
        "persistent-volume-label",
        "pod-security-policy",
        "resource-quota",
        "workload-quota",
      ];
      const names = catalogue.map(({ name }) => name).filter((name) => !excludedRules.includes(name));
      const rules = Object.fromEntries(
        names.map((name) => [name, { timeoutSeconds: 1, exempt: { users: ["nobody"] } }]),
      );
      const postern = await serveCatalogueForTests(JSON.stringify({ rules }), openCapabilities);
      try {
        const entries = postern.manifests().flatMap(({ webhooks }) => webhooks);
        const probes = await probeEntries(entries, { timeoutSeconds: 10 });
        assert.deepEqual(
          probes.filter(({ ok }) => !ok).map(({ sentence }) => sentence),
          [],
        );
        assert.deepEqual(
          probes.map(({ entry }) => entry),
          entries.map(({ name }) => name),
        );
      } finally {
        await postern.stop();
      }
    });
  });
});

const selectConfigurations = (objects: object[]) =>
  objects.filter((object): object is ReturnType<typeof buildWebhookConfigurations>[number] => "webhooks" in object);

const moto = await needs("moto");

describe("opening a cluster", () => {
  for (const { because, connect, deployer, identity, says } of rows.unreachable)
    it(`opening a cluster is refused because ${because}`, () => {
      const aws = identity && { identity: async () => ({ accessKeyId: "a", secretAccessKey: "b" }) };
      return assert.rejects(
        openClusterApi("prod-eu", connect, { folder, ...deployer, ...aws }),
        expectComplaint(new RegExp(says)),
      );
    });

  it("opening a cluster reads an EKS cluster from AWS's API", moto, async () => {
    const moto = await startMoto("AWS_ENDPOINT_URL_EKS");
    try {
      const body = { name: "prod", roleArn: "arn:aws:iam::123456789012:role/a", resourcesVpcConfig: {} };
      const scope = "a/20260101/eu-west-1/eks/aws4_request";
      const headers = { authorization: `AWS4-HMAC-SHA256 Credential=${scope}, SignedHeaders=host, Signature=x` };
      const options = { method: "POST", headers, body: JSON.stringify(body) };
      const response = await fetch(`${moto.url}/clusters`, options);
      assert.equal(response.status, 200, await response.text());
      const readIdentity = async () => ({ accessKeyId: "a", secretAccessKey: "b" });
      const connection = await readEksServerAndCa({ eks: "prod", region: "eu-west-1" }, readIdentity);
      assert.match(connection.server, /^https:\/\/[^/]+\.eks\.amazonaws\.com$/);
      await assert.rejects(
        readEksServerAndCa({ eks: "none", region: "eu-west-1" }, readIdentity),
        expectComplaint(/^EKS doesn't describe cluster none in eu-west-1 \(404\): No cluster found for name: none\.$/),
      );
    } finally {
      moto.stop();
      delete process.env.AWS_ENDPOINT_URL_EKS;
    }
  });
});

it("names and configurations of webhook entries show the called rule, variant and phase", () => {
  const calledRules = listRulesCalledByEntries(buildWanted({ "always-pull-images": {}, "node-restriction": {} }));
  assert.deepEqual(
    calledRules.filter(({ phase }) => phase === "validate"),
    [{ rule: "always-pull-images", phase: "validate" }],
  );
  assert.deepEqual(calledRules.slice(0, 2), [
    { rule: "node-restriction", variant: "heartbeats", phase: "mutate" },
    { rule: "node-restriction", variant: "pods", phase: "mutate" },
  ]);
});

describe("a probe", () => {
  let postern: Awaited<ReturnType<typeof serveCatalogueForTests>>;
  let endpoint: ReturnType<typeof createSecureServer>;
  let answers: ((uid: string) => { status: number; body: string } | "cut")[] = [];
  let requests: (Record<"method" | "url" | "type" | "version", string | undefined> & { review: unknown })[] = [];
  let url: string;
  const threeTries = { tries: 3, pause: 1 };
  before(async () => {
    postern = await serveCatalogueForTests(
      "rules: { always-pull-images: , always-deny: { exempt: { users: [nobody] } }, limit-ranger: }",
    );
    endpoint = createSecureServer(certificate satisfies ServerCertificate, async (request, response) => {
      let text = "";
      for await (const chunk of request) text += chunk;
      const review = JSON.parse(text);
      const { method, url, headers, httpVersion } = request;
      requests.push({ method, url, type: headers["content-type"], version: httpVersion, review });
      const answer = (answers.shift() ?? allowReview)(review.request.uid);
      if (answer === "cut") return request.socket.destroy();
      response.writeHead(answer.status).end(answer.body);
    });
    url = `https://127.0.0.1:${await listen(endpoint)}/local.${key}/rule/validate`;
  });
  beforeEach(() => {
    [answers, requests] = [[], []];
  });
  after(async () => {
    endpoint?.close();
    endpoint?.closeAllConnections();
    await postern?.stop();
  });
  const formatReview = (response: object) =>
    JSON.stringify({ apiVersion: "admission.k8s.io/v1", kind: "AdmissionReview", response });
  const allowReview = (uid: string) => ({ status: 200, body: formatReview({ uid, allowed: true }) });
  const maskUrl = () => url.replace(key, "…");

  it("a probe sends the endpoint a review in the form in which the API server sends it, with dryRun", async () => {
    const probe = await probeEndpoint(url, certificate.ca);
    assert.deepEqual([probe.ok, probe.sentence], [true, `${maskUrl()} answers in ${probe.milliseconds} ms`]);
    const [{ review, ...head } = { review: undefined }] = requests;
    const path = `/local.${key}/rule/validate?timeout=3s`;
    assert.deepEqual(head, { method: "POST", url: path, type: "application/json", version: "1.1" });
    const { request } = requireValidReview(review);
    assert.deepEqual([request.operation, request.dryRun, request.userInfo.username], ["CREATE", true, "postern:probe"]);
    const metadata = { name: "postern-probe", namespace: "default" };
    assert.deepEqual(request.object, { apiVersion: "v1", kind: "ConfigMap", metadata });
  });

  it("a probe sends a valid request for every match of a rule", () => {
    for (const { match, fields } of rows.requests) {
      const { request } = requireValidReview(buildProbeReview([match]));
      for (const [name, value] of Object.entries(fields))
        assert.deepEqual(Reflect.get(request, name) ?? null, value, `${name} for ${match.resources}`);
    }
  });

  it("a probe passes if an endpoint allows or refuses, and fails if it can't read the cluster", async () => {
    const probes = await probeEntries(
      postern.manifests().flatMap(({ webhooks }) => webhooks),
      threeTries,
    );
    assert.deepEqual(
      probes.map(({ entry, ok }) => [entry.replace(".postern.dev", ""), ok]),
      [
        ["limit-ranger", false],
        ["always-pull-images", true],
        ["always-deny", true],
        ["limit-ranger", false],
        ["always-pull-images", true],
      ],
    );
    assert.match(
      probes[0]?.sentence ?? "",
      /\/local\.…\/limit-ranger\/mutate: it answers 503: nothing can be read from cluster "local": it has no connection here$/,
    );
  });

  it("a probe reports a wrong key or an unknown rule", async () => {
    const [entry] = postern.manifests().flatMap(({ webhooks }) => webhooks);
    assert.ok(entry);
    const ca = Buffer.from(entry.clientConfig.caBundle ?? "", "base64").toString();
    const correctUrl = entry.clientConfig.url;
    const origin = new URL(correctUrl).origin;
    // A key has 86 characters.
    const withWrongKey = correctUrl.replace(/\.[\w-]{86}\//, `.${key}/`);
    const withUnknownRule = correctUrl.replace("limit-ranger", "nobody");
    for (const wrongUrl of [withWrongKey, withUnknownRule]) {
      const { ok, sentence } = await probeEndpoint(wrongUrl, ca);
      assert.equal(ok, false);
      assert.equal(
        sentence,
        `${origin}/local.…${new URL(wrongUrl).pathname.slice("/local.".length + 86)}: the endpoint doesn't know this cluster's key, or the rule`,
      );
    }
  });

  for (const { endpoint, status = 200, body, says, tries } of rows.faulty)
    it(`a probe reports that an endpoint ${endpoint}`, async () => {
      answers = Array(5).fill(() => (body === "cut" ? body : { status, body }));
      const probe = await probeEndpoint(url, certificate.ca, threeTries);
      assert.deepEqual([probe.ok, probe.sentence, requests.length], [false, `${maskUrl()}: ${says}`, tries]);
    });
  it("a probe passes if the third of three tries succeeds", async () => {
    answers = [() => ({ status: 503, body: "{}" }), () => "cut"];
    assert.equal((await probeEndpoint(url, certificate.ca, threeTries)).ok, true);
    assert.equal(requests.length, 3);
  });
  /** Answers of AWS while a change, such as a new permission, has not spread yet. */
  const answersWhileSpreading = [
    { status: 403, body: '{"Message":"Forbidden"}' },
    { status: 404, body: '{"message":"Not Found"}' },
    { status: 404, body: '{"kind":"Status","message":"there is nothing here"}' },
    { status: 500, body: '{"message":"Internal Server Error"}' },
  ];
  it("a probe is repeated while AWS's changes may still propagate, until `propagationDeadline`", async () => {
    answers = answersWhileSpreading.map((answer) => () => answer);
    const limits = { ...threeTries, propagationDeadline: Date.now() + 60_000 };
    assert.equal((await probeEndpoint(url, certificate.ca, limits)).ok, true);
    assert.equal(requests.length, answersWhileSpreading.length + 1);
    for (const answer of answersWhileSpreading) {
      answers = Array(2000).fill(() => answer);
      const brief = { tries: 1, pause: 100, propagationDeadline: Date.now() + 500 };
      const { ok, sentence } = await probeEndpoint(url, certificate.ca, brief);
      assert.equal(ok, false);
      assert.match(sentence, / \(the last of \d+ answers in \d+ s\)$/);
    }
  });
  it("a probe isn't repeated more than three times if the rule fails, even while AWS's changes spread", async () => {
    answers = Array(5).fill(() => ({ status: 500, body: '{"kind":"Status","message":"the rule failed"}' }));
    const limits = { ...threeTries, propagationDeadline: Date.now() + 60_000 };
    const { sentence } = await probeEndpoint(url, certificate.ca, limits);
    assert.deepEqual([sentence, requests.length], [`${maskUrl()}: it answers 500: the rule failed`, 3]);
  });
  it("a probe fails without a request if the API server would refuse the endpoint's certificate", async () => {
    for (const ca of [undefined, otherCertificate.ca]) {
      const { ok, sentence } = await probeEndpoint(url, ca, threeTries);
      assert.equal(ok, false);
      assert.match(sentence, /: it can't be reached: (self-signed certificate|unable to )/);
    }
    assert.equal(requests.length, 0);
  });
});

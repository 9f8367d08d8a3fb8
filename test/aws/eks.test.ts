import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { parseJson } from "#lib/json.ts";
import { type Checkout, openCheckout } from "../checkout.ts";
import { requireBinaries } from "../control-plane/binaries.ts";
import { bootCluster, type TestCluster } from "../control-plane/cluster.ts";
import { needs } from "../parts.ts";
import { type Account, openAccount } from "./account.ts";
import {
  accountId,
  buildArn,
  findAllowingStatement,
  listIamCalls,
  placeStatements,
  readAccess,
  region,
} from "./rights.ts";

// Tests docs/start/eks.md with a real API server that finds the user of a token by access entries, as an EKS cluster
// does.
const stage = "prod";
const accessEntryOwner = `aws:${accountId}:${region}:${stage}`;

describe("an EKS cluster", await needs("moto", "runtime client", "API server"), () => {
  let account: Account;
  let cluster: TestCluster;
  let checkout: Checkout;
  let access: Awaited<ReturnType<typeof readAccess>>;
  let authenticator: { stop(): Promise<void> };
  /** The statements that give the caller its rights. */
  let statements: ReturnType<typeof placeStatements>;
  /** The used rights to EKS, by policy. */
  const usedRights = new Set<string>();

  const writeConfig = (rules: string, connect = `{ eks: prod-eu, region: ${region} }`) =>
    checkout.write("postern.yaml", `rules:\n${rules}clusters:\n  prod-eu:\n    connect: ${connect}\n`);
  const rules = "  always-pull-images:\n  pod-node-selector:\n";

  before(async () => {
    const binaries = await requireBinaries();
    [account, checkout, access] = await Promise.all([
      openAccount(region),
      openCheckout(["always-pull-images", "pod-node-selector", "limit-ranger", "pod-topology-labels"]),
      readAccess({ Stage: stage, GitHubRepository: "acme/postern", EksClusters: [buildArn("eks", "cluster/prod-eu")] }),
    ]);
    const started = await account.eks.startAuthenticator("prod-eu", checkout.folder);
    authenticator = started;
    cluster = await bootCluster(binaries, { rbac: true, flags: started.flags });
    const entries = new Map<string, { kubernetesGroups: string[] }>();
    for (const name of ["deployer", "admin"])
      entries.set(`arn:aws:iam::${accountId}:user/${name}`, { kubernetesGroups: ["admins"] });
    account.clusters.set("prod-eu", { server: cluster.server, ca: cluster.ca, entries });
    const metadata = { name: "admins" };
    const rbac = "rbac.authorization.k8s.io";
    const body = {
      apiVersion: `${rbac}/v1`,
      kind: "ClusterRoleBinding",
      metadata,
      roleRef: { apiGroup: rbac, kind: "ClusterRole", name: "cluster-admin" },
      subjects: [{ apiGroup: rbac, kind: "Group", name: "admins" }],
    };
    await cluster.admin({ method: "POST", path: `/apis/${rbac}/v1/clusterrolebindings`, body });
    await checkout.write("ca.pem", account.ca);
    await writeConfig(rules);
    account.allow = (recorded) =>
      listIamCalls(recorded).every((call) => {
        const statement = findAllowingStatement(statements, call);
        if (statement && recorded.service === "eks") usedRights.add(`${statement.policy} ${call.action}`);
        return statement !== undefined;
      });
    statements = access.role("DeployRole");
  });
  after(async () => {
    await Promise.all([account?.stop(), cluster?.stop(), authenticator?.stop()]);
    await checkout?.remove();
  });

  const run = async (...words: string[]) => {
    const result = await checkout.postern(account.actAs("deployer").env, ...words, "--stage", stage);
    return { code: result.code, output: `${result.stdout}${result.stderr}`, stderr: result.stderr };
  };
  const deploy = (...words: string[]) => run("deploy", "--ca", join(checkout.folder, "ca.pem"), ...words);
  const requireDeployed = async (...words: string[]) => {
    const { code, output } = await deploy(...words);
    assert.equal(code, 0, output);
    return output;
  };
  /** Returns the access entries of functions' roles. */
  const listEntries = () =>
    [...(account.clusters.get("prod-eu")?.entries ?? [])].flatMap(([principal, { kubernetesGroups, tags }]) =>
      principal.includes(":role/postern-prod-PodDashnode") ? [{ kubernetesGroups, tags }] : [],
    );
  const stageEntry = { kubernetesGroups: ["postern:pod-node-selector"], tags: { postern: accessEntryOwner } };
  const createPod = async (name: string, nodeSelector?: object) => {
    const body = { metadata: { name }, spec: { containers: [{ name: "a", image: "nginx:1.29" }], nodeSelector } };
    return cluster.admin({ method: "POST", path: "/api/v1/namespaces/payments/pods", body });
  };

  it("the plan for an EKS cluster shows the missing access entry of the rule that reads the cluster", async () => {
    assert.match(
      await requireDeployed("--plan-only"),
      /\ncluster prod-eu\n {2}~ EKS access entry of pod-node-selector is missing\n {2}~ ClusterRole postern:pod-node-selector is missing\n/,
    );
  });

  it("the plan names a rule whose plugin is on by default in the version of the EKS cluster", async () => {
    const { major, minor } = Object((await cluster.admin({ method: "GET", path: "/version" })).body);
    await writeConfig(`${rules}  limit-ranger:\n  pod-topology-labels:\n`);
    const plan = await requireDeployed("--plan-only");
    await writeConfig(rules);
    assert.ok(
      plan.includes(`
rules that an API server may not need, because it has their plugin on (npx postern explain RULE says what else they do)
  limit-ranger: $1.81 for a million reviews
    LimitRanger is probably on in prod-eu: it is on by default in Kubernetes ${major}.${minor}
`),
      plan,
    );
  });

  it("a deployment without rights to access entries stops before any change, and prints the rights", async () => {
    const withoutAccessEntries = statements.map(({ actions, ...statement }) => {
      return { ...statement, actions: actions.filter((action) => !/AccessEntr|eks:TagResource/.test(action)) };
    });
    statements = withoutAccessEntries;
    const { code, stderr } = await deploy();
    assert.equal(code, 1, stderr);
    const [, message] =
      stderr.match(/^cluster prod-eu: EKS doesn't list the access entries of prod-eu \(403\): (.*)\n/) ?? [];
    assert.match(String(message), /not authorized to perform: eks:ListAccessEntries/);
    assert.deepEqual([account.cloudformation.stack("postern-prod"), listEntries()], [undefined, []]);
    const [, document] =
      /\nan administrator of account 123456789012 must run this first:\naws iam put-user-policy --user-name deployer --policy-name postern-prod-access-entries --policy-document '(.*)'\n$/.exec(
        stderr,
      ) ?? [];
    const printed = placeStatements(Object(parseJson(String(document))), "printed");
    statements = [
      ...withoutAccessEntries,
      ...printed.filter(({ actions }) => !actions.includes("eks:CreateAccessEntry")),
    ];
    const withoutCreation = await deploy();
    assert.match(withoutCreation.stderr, /^cluster prod-eu: EKS doesn't create access entries of prod-eu \(403\): /);
    assert.deepEqual([withoutCreation.code, account.cloudformation.stack("postern-prod")], [1, undefined]);
    statements = [...withoutAccessEntries, ...printed];
  });

  it("an EKS cluster gets its rules by one deployment, and a second deployment has nothing to do", async () => {
    const output = await requireDeployed();
    assert.match(output, / {2}cluster prod-eu: access entries: 1 created\n.* cluster prod-eu: endpoints: 4 answer\n/);
    assert.match(output, /\n {2}~ mutating entry pod-node-selector.postern.dev is missing\n/);
    assert.match(output, /\nrelease r1 is live in prod-eu\n$/);
    assert.deepEqual(listEntries(), [stageEntry]);
    statements = access.role("DeployRole");
    assert.match(await requireDeployed(), /\nnothing to do: release r1 is live\n$/);
  });

  it("the rules decide about pods in the EKS cluster, and read the cluster by their access entry", async () => {
    const annotations = { "scheduler.alpha.kubernetes.io/node-selector": "pool=payments" };
    const body = { metadata: { name: "payments", annotations } };
    await cluster.admin({ method: "POST", path: "/api/v1/namespaces", body });
    const { code, body: pod } = await createPod("web");
    assert.equal(code, 201, JSON.stringify(pod));
    const { nodeSelector, containers } = Object(pod).spec;
    assert.deepEqual([nodeSelector, containers[0].imagePullPolicy], [{ pool: "payments" }, "Always"]);
    assert.equal(
      Object((await createPod("other", { pool: "gpu" })).body).message,
      'admission webhook "pod-node-selector.postern.dev" denied the request: pods "other" is forbidden: pod node label selector conflicts with its namespace node label selector',
    );
  });

  const editStageEntry = (change: object) => {
    const entries = account.clusters.get("prod-eu")?.entries;
    for (const [principal, entry] of entries ?? [])
      if (principal.includes("PodDashnode")) entries?.set(principal, { ...entry, ...change });
  };

  it("a deployment repairs an access entry that was deleted or put into other groups", async () => {
    editStageEntry({ kubernetesGroups: ["postern:pod-node-selector", "admins"] });
    assert.match(
      await requireDeployed(),
      /\n {2}~ EKS access entry of pod-node-selector is not in the group postern:pod-node-selector alone\n/,
    );
    assert.deepEqual(listEntries(), [stageEntry]);
    account.clusters.get("prod-eu")?.entries?.forEach((_, principal, entries) => {
      if (principal.includes("PodDashnode")) entries.delete(principal);
    });
    const { code, output } = await run("status");
    assert.equal(code, 1, output);
    assert.match(output, /\n {2}~ EKS access entry of pod-node-selector is missing\n/);
    assert.match(await requireDeployed(), /\n {2}~ EKS access entry of pod-node-selector is missing\n/);
    assert.deepEqual(listEntries(), [stageEntry]);
  });

  it("an access entry of another stage is kept; in the wrong group, it stops the deployment", async () => {
    const otherOwner = { tags: { postern: `aws:${accountId}:${region}:other` } };
    editStageEntry({ ...otherOwner, kubernetesGroups: ["postern:pod-node-selector", "admins"] });
    assert.match(await requireDeployed(), /\nnothing to do: /);
    editStageEntry({ kubernetesGroups: ["admins"] });
    const { code, stderr } = await deploy();
    assert.equal(code, 3, stderr);
    assert.match(
      stderr,
      /^cluster prod-eu: the access entry of arn:aws:iam::123456789012:role\/postern-prod-PodDash\S+ in prod-eu is not this stage's, because it has no tag postern=aws:123456789012:eu-west-1:prod, and it is not in the group postern:pod-node-selector; delete it, or add the group$/m,
    );
    assert.deepEqual(listEntries(), [{ kubernetesGroups: ["admins"], ...otherOwner }]);
    editStageEntry(stageEntry);
  });

  it("the access entry of a rule that is turned off is deleted, and a rollback creates it again", async () => {
    await writeConfig("  always-pull-images:\n");
    const output = await requireDeployed();
    assert.match(output, /\n {2}~ EKS access entry in the group postern:pod-node-selector should not be there\n/);
    assert.match(output, /\ncluster prod-eu: access entries: 1 deleted\n/);
    assert.deepEqual(listEntries(), []);
    const { code, output: rollbackOutput } = await run("rollback", "--all");
    assert.equal(code, 0, rollbackOutput);
    assert.deepEqual(listEntries(), [stageEntry]);
    assert.deepEqual(Object((await createPod("again")).body).spec?.nodeSelector, { pool: "payments" });
    await writeConfig(rules);
  });

  it("the tests of this file have used all rights to EKS that the roles have", () => {
    const givenRights = ["PlanPolicy", "DeployPolicy"].flatMap((policy) =>
      access.policy(policy).flatMap(({ actions }) => actions.map((action) => `${policy} ${action}`)),
    );
    const rights = givenRights.filter((right) => / eks:/.test(right));
    assert.deepEqual([...usedRights].filter((right) => !right.startsWith("printed")).sort(), rights.sort());
  });

  it("an EKS cluster can be in another account, whose role the deployment assumes", async () => {
    const role = "arn:aws:iam::444455556666:role/postern";
    const connect = `{ eks: prod-eu, region: ${region}, role: "${role}" }`;
    const prodCluster = account.clusters.get("prod-eu");
    assert.ok(prodCluster?.entries);
    account.clusters.set("prod-eu", { ...prodCluster, account: "444455556666" });
    prodCluster.entries.delete(`arn:aws:iam::${accountId}:user/deployer`);
    prodCluster.entries.set(role, { kubernetesGroups: ["admins"] });
    await writeConfig(rules, connect);
    const refused = await deploy("--plan-only");
    assert.equal(refused.code, 3);
    assert.match(
      refused.stderr,
      /^the role arn:aws:iam::444455556666:role\/postern in postern.yaml can't be assumed: .*sts:AssumeRole/,
    );
    account.eks.roles.add(role);
    account.allow = undefined;
    editStageEntry({ kubernetesGroups: ["postern:other"] });
    assert.match(await requireDeployed(), /\n.* cluster prod-eu: access entries: 1 created\n/);
    assert.deepEqual(listEntries(), [stageEntry]);
    assert.deepEqual(Object((await createPod("there")).body).spec?.nodeSelector, { pool: "payments" });
  });

  it("`destroy` without --yes announces the deletion of the access entries", async () => {
    const { output } = await run("destroy");
    assert.match(output, /policies and roles in (\S+), and the functions' access entries of EKS in \1$/m);
  });

  it("`destroy --yes` keeps the access entries of other programs", async () => {
    const { code, output } = await run("destroy", "--yes");
    assert.equal(code, 0, output);
    assert.deepEqual(
      [...(account.clusters.get("prod-eu")?.entries?.keys() ?? [])],
      [`arn:aws:iam::${accountId}:user/admin`, "arn:aws:iam::444455556666:role/postern"],
    );
  });
});

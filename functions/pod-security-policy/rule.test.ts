import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { toMap } from "postern/json";
import type { KubernetesObject } from "postern/review";
import { applyOutcomePatch, type Case, openRule } from "postern/test";
import type { PodSecurityPolicyObject } from "./policy.ts";
import { listVolumeOffences } from "./volumes.ts";

const { cases: allCases, decideCase } = await openRule(import.meta.dirname);

const runAsAny = { rule: "RunAsAny" };
const spec = { seLinux: runAsAny, runAsUser: runAsAny, supplementalGroups: runAsAny, fsGroup: runAsAny };
const use = { groups: ["developers"] };

describe("pod-security-policy", async () => {
  const cases = allCases.filter(({ resource, oldObject }) => !resource && !oldObject);
  const pods = cases.map(({ mutate, validate }) => (mutate ?? validate) as KubernetesObject);
  const settings = cases.flatMap(({ settings, needs }) => (settings && !needs ? [settings] : []));

  it("pod-security-policy changes a pod only once, and admits the changed pod, under all settings", async () => {
    let admittedPods = 0;
    for (const setting of settings)
      for (const mutate of pods) {
        const { outcome, refused } = await decideCase({ name: "", settings: setting, mutate });
        if (refused) continue;
        const pod = applyOutcomePatch(mutate, outcome) as KubernetesObject;
        admittedPods++;
        assert.equal(
          (await decideCase({ name: "", settings: setting, mutate: pod })).operations,
          0,
          JSON.stringify([setting, pod]),
        );
        assert.equal(
          (await decideCase({ name: "", settings: setting, validate: pod })).refused,
          false,
          JSON.stringify([setting, pod]),
        );
      }
    assert.ok(admittedPods > 0);
  });
});

// This request can't be a case, because cases also run against a real API server, which warns of an annotation without
// the field.
it("pod-security-policy copies a seccomp profile from an annotation to the field", async () => {
  const key = "seccomp.security.alpha.kubernetes.io";
  const metadata = { name: "p", annotations: { [`${key}/allowedProfileNames`]: "unconfined,runtime/default" } };
  const mutate = {
    metadata: { name: "a", annotations: { [`${key}/pod`]: "runtime/default", [`container.${key}/c`]: "unconfined" } },
    spec: { containers: [{ name: "c" }] },
  };
  const podCase: Case = { name: "", settings: { policies: [{ metadata, spec, use }] }, mutate };
  const { outcome } = await decideCase(podCase);
  assert.deepEqual(toMap(applyOutcomePatch(mutate, outcome)).spec, {
    securityContext: { seccompProfile: { type: "RuntimeDefault" } },
    containers: [{ name: "c", securityContext: { seccompProfile: { type: "Unconfined" } } }],
  });
});

describe("a refusal of pod-security-policy", () => {
  const buildPolicy = (fields: object): PodSecurityPolicyObject =>
    JSON.parse(JSON.stringify({ metadata: { name: "p" }, spec: { ...spec, ...fields }, use }));

  it("a refusal of pod-security-policy is cut if a single reason is too long", async () => {
    const path = "a".repeat(100_000);
    const policies = [buildPolicy({ volumes: ["hostPath"], allowedHostPaths: [{ pathPrefix: "/srv" }] })];
    const volumes = [{ name: "v", hostPath: { path } }];
    const validate = { metadata: { name: "a" }, spec: { volumes, containers: [] } };
    const podCase: Case = { name: "", settings: { policies }, validate };
    const message = (await decideCase(podCase)).outcome.status?.message ?? "";
    const start = 'pods "a" is forbidden: unable to validate against any pod security policy: [';
    const reason = `spec.volumes[0].hostPath.pathPrefix: Invalid value: "${path}`;
    assert.equal(message, `${start}${reason.slice(0, 65_536)} …]`);
  });
  it("listVolumeOffences reads each mount of a pod once, for any number of volumes", () => {
    let reads = 0;
    const volumeMounts = Array.from({ length: 100 }, (_, index) => ({
      mountPath: "/m",
      readOnly: index !== 99,
      get name() {
        reads++;
        return `v${index}`;
      },
    }));
    const volumes = Array.from({ length: 100 }, (_, index) => ({ name: `v${index}`, hostPath: { path: "/srv" } }));
    const pod = { spec: { volumes, containers: [{ name: "c", volumeMounts }] } };
    const readOnly = buildPolicy({ volumes: ["*"], allowedHostPaths: [{ pathPrefix: "/srv", readOnly: true }] });
    assert.deepEqual(
      [...listVolumeOffences(readOnly, pod)],
      ["spec.containers[0].volumeMounts[99].readOnly: Invalid value: false: must be read-only"],
    );
    assert.equal(reads, volumeMounts.length);
  });
});

describe("the use of a policy", () => {
  const decideUse = (use: object, request: object = {}) => {
    const settings = { policies: [{ metadata: { name: "p" }, spec, use }] };
    const validate = { metadata: { name: "a" }, spec: { serviceAccountName: "builder", containers: [] } };
    // Unless `request` has a `user`, the request is from jane, who is in the group developers.
    const entry: Case = { name: "", settings, validate, namespace: "shop", ...request };
    return decideCase(entry);
  };
  const mayUse = async (use: object, request?: object) => !(await decideUse(use, request)).refused;

  it("the use of a PodSecurityPolicy is granted to the pod's service account, in its own namespace", async () => {
    assert.equal(await mayUse({ serviceAccounts: ["shop:builder"] }), true);
    assert.equal(await mayUse({ serviceAccounts: ["bank:builder"] }), false);
    assert.equal(await mayUse({ groups: ["system:serviceaccounts:shop"] }), true);
    assert.equal(await mayUse({ groups: ["system:serviceaccounts:bank"] }), false);
  });
  it("the use of a PodSecurityPolicy is granted only in the listed namespaces, or in all if none are", async () => {
    assert.equal(await mayUse({ users: ["jane"], namespaces: ["bank", "shop"] }), true);
    assert.equal(await mayUse({ users: ["jane"], namespaces: ["bank"] }), false);
    assert.equal(await mayUse({ users: ["jane"], namespaces: [] }), true);
  });
  it("a PodSecurityPolicy is granted by access reviews, first for the account and then for the user", async () => {
    const account = {
      username: "system:serviceaccount:shop:builder",
      groups: ["system:serviceaccounts", "system:serviceaccounts:shop"],
    };
    const question = { verb: "use", group: "policy", resource: "podsecuritypolicies", namespace: "shop", name: "p" };
    const settings = { accessReviews: true, policies: [{ metadata: { name: "p" }, spec }] };
    // A question without a recorded answer fails.
    const needs = { may: [{ ...question, user: account, allowed: true }] };
    assert.equal(await mayUse({}, { settings, needs }), true);
    const accountDenials = [question, { ...question, group: "extensions" }].map((access) => ({
      ...access,
      user: account,
      allowed: false,
    }));
    const user = { username: "jane", groups: ["developers"] };
    const denialsAndPermission = { may: [...accountDenials, { ...question, user, allowed: true }] };
    assert.equal(await mayUse({}, { settings, user, needs: denialsAndPermission }), true);
  });
  it("the use of a PodSecurityPolicy is not granted to a user without a name", async () => {
    assert.equal(await mayUse({ users: ["john"] }, { user: {} }), false);
  });
});

import assert from "node:assert/strict";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, before, describe, it } from "node:test";
import { stringify } from "yaml";
import { readCatalogue } from "../catalogue/registry.ts";
import { chooseCluster } from "../config/config.ts";
import { parseConfig } from "../project/project.ts";
import { type CheckOptions, openCheck } from "./check.ts";

// What check takes for granted of a cluster, and what it says of what it can't know. The command itself: test/local/check.test.ts.
const catalogue = await readCatalogue();
let folder = "";
before(async () => {
  folder = await mkdtemp(join(tmpdir(), "postern-check-"));
});
after(() => rm(folder, { recursive: true }));

const written = async (name: string, ...objects: object[]): Promise<string> => {
  const file = join(folder, name);
  await mkdir(dirname(file), { recursive: true });
  await writeFile(file, objects.map((one) => stringify(one)).join("---\n"));
  return file;
};

/** What becomes of these objects under these rules, where that exists. */
const checked = async (
  rules: string,
  objects: object[],
  { state, old, ...others }: { state?: object[]; old?: object[] } & Partial<Omit<CheckOptions, "state" | "old">> = {},
) => {
  const check = await openCheck({
    catalogue,
    ...{ cluster: chooseCluster(parseConfig(`rules: { ${rules} }`, catalogue), undefined), harden: false },
    ...{ paths: [await written("all.yaml", ...objects)], reviews: [], webhooks: [], hosts: [] },
    ...{ operation: undefined, namespace: "default", alsoPods: false, user: { username: "jane" } },
    state: state ? [await written("state.yaml", ...state)] : [],
    old: old ? [await written("old.yaml", ...old)] : [],
    ...others,
  });
  const verdicts: Record<string, string> = {};
  const passes: Record<string, string[]> = {};
  const afterwards: Record<string, any> = {};
  for await (const { checked, after } of check.evaluations) {
    const { name, verdict, denials, undecided, passed } = checked;
    passes[name] = passed;
    verdicts[name] = [verdict, ...denials.map(({ message }) => message), ...undecided].join("; ");
    afterwards[name] = after;
  }
  return { verdicts, passes, afterwards, notes: [...check.notes], faults: check.faults };
};

const named = (kind: string, name: string, more: object = {}, apiVersion = "v1", namespace?: string) => {
  return { apiVersion, kind, metadata: { name, ...(namespace && { namespace }) }, ...more };
};
const pod = (name: string, spec: object = {}, namespace?: string) =>
  named("Pod", name, { spec: { containers: [{ name: "a", image: "a:1" }], ...spec } }, "v1", namespace);
const asks = (names: string) =>
  `${names} the cluster, of which nothing is known but these manifests; --state says what exists`;
const taken = (namespace: string) =>
  `namespace ${namespace} isn't among the manifests; it is taken for one that is there, without labels of its own`;
const unknown =
  "what the ServiceAccount default of a namespace holds, which controllers make, isn't known here; it is taken for one that holds nothing";

describe("what check takes to be there", () => {
  it("are namespaces that nobody described, which is said once of them all", async () => {
    const pods = (count: number) => Array.from({ length: count }, (_, number) => pod(`p${number}`, {}, `n${number}`));
    const notes = async (count: number, state?: object[]) =>
      (await checked("always-pull-images:", pods(count), state && { state })).notes;
    assert.deepEqual(await notes(2), [
      "namespaces n0, n1 aren't among the manifests; they are taken for there, without labels of their own",
    ]);
    assert.deepEqual(await notes(7), [
      "namespaces n0, n1, n2, n3, n4 and 2 more aren't among the manifests; they are taken for there, without labels of their own",
    ]);
    assert.deepEqual(await notes(2, [named("Namespace", "n0")]), [
      "namespace n1 is neither in --state nor among the manifests",
    ]);
  });
  it("is a service account in every namespace, of which nothing else is known, and that is said once", async () => {
    const pods = [pod("a"), pod("b", {}, "shop"), pod("c", {}, "new"), pod("d", { serviceAccountName: "other" })];
    const { verdicts, notes } = await checked("service-account:", [...pods, named("Namespace", "new")]);
    assert.deepEqual([verdicts.a, verdicts.b, verdicts.c], ["changed", "changed", "changed"]);
    assert.match(String(verdicts.d), /^denied; .*serviceaccount "other" not found$/);
    assert.deepEqual(notes.toSorted(), [taken("shop"), asks("service-account asks"), unknown].toSorted());
  });

  it("is the service account that is said to exist", async () => {
    const account = named("ServiceAccount", "default", { imagePullSecrets: [{ name: "pull" }] }, "v1", "shop");
    const state = [account, named("Namespace", "shop"), named("Namespace", "bare")];
    const { afterwards, notes } = await checked("service-account:", [pod("a", {}, "shop")], { state });
    assert.deepEqual(afterwards.a.spec.imagePullSecrets, [{ name: "pull" }]);
    assert.deepEqual(notes, []);
    const { verdicts, ...bare } = await checked("service-account:", [pod("a", {}, "bare")], { state });
    assert.deepEqual([verdicts.a, bare.notes], ["changed", [unknown]]);
    const { verdicts: nowhere } = await checked("service-account:", [pod("a", {}, "nowhere")], { state });
    assert.match(String(nowhere.a), /^denied; /);
  });

  it("is what a controller made, where somebody applies that", async () => {
    const account = named("ServiceAccount", "default", { imagePullSecrets: [{ name: "pull" }] });
    const { afterwards, notes } = await checked("service-account:", [account, pod("a")]);
    assert.deepEqual(afterwards.a.spec.imagePullSecrets, [{ name: "pull" }]);
    assert.deepEqual(notes.includes(unknown), true);
  });

  it("is a class for each of the two priorities that systems have", async () => {
    const classes = ["system-cluster-critical", "system-node-critical", "none"];
    const pods = classes.map((name) => pod(name, { priorityClassName: name }));
    const { verdicts, afterwards } = await checked("priority:", pods);
    assert.deepEqual(
      classes.slice(0, 2).map((name) => afterwards[name].spec.priority),
      [2_000_000_000, 2_000_001_000],
    );
    assert.match(String(verdicts.none), /^denied; .*no PriorityClass with name none was found$/);
  });
});

describe("what check takes to go away", () => {
  const mark = { labels: { "deletion-guard.postern.dev/cleans-up": "true" } };
  const worker = pod("w", { nodeName: "n1" }, "shop");
  const guarded = { ...worker, metadata: { ...worker.metadata, ...mark } };
  const exempt = 'deletion-guard: { exempt: { namespaceLabels: { loose: "true" } } }';
  const shop = (labels: object = {}) => ({ ...named("Namespace", "shop"), metadata: { name: "shop", labels } });
  const operation = "DELETE" as const;
  const denied = /^denied; pod "w" has to clean up first/;

  it("is there until then, with its namespace", async () => {
    const { verdicts, notes } = await checked(exempt, [guarded, shop()], { operation });
    assert.match(String(verdicts.w), denied);
    assert.deepEqual([verdicts.shop, notes], ["allowed", [asks("deletion-guard asks")]]);
    const { verdicts: loose } = await checked(exempt, [guarded, shop({ loose: "true" })], { operation });
    assert.equal(loose.w, "allowed");
  });

  it("is what is there, whatever its manifest says", async () => {
    const finished = { annotations: { "deletion-guard.postern.dev/finished": "true" } };
    const state = [{ ...guarded, metadata: { ...guarded.metadata, ...finished } }, shop()];
    assert.deepEqual((await checked("deletion-guard:", [guarded], { operation, state })).verdicts, { w: "allowed" });
    const { verdicts } = await checked("deletion-guard:", [worker], { operation, state: [guarded, shop()] });
    assert.match(String(verdicts.w), denied);
  });

  it("is a namespace that ends, but not at once", async () => {
    const { verdicts, notes } = await checked("deletion-guard:", [shop(), guarded], { operation });
    assert.deepEqual(verdicts, { shop: "allowed", w: "allowed" });
    assert.deepEqual(notes, [asks("deletion-guard asks")]);
    const request = {
      ...{ uid: "u", name: "shop", namespace: "shop", operation, userInfo: {} },
      kind: { group: "", version: "v1", kind: "Namespace" },
      resource: { group: "", version: "v1", resource: "namespaces" },
      oldObject: shop(),
    };
    const review = { apiVersion: "admission.k8s.io/v1", kind: "AdmissionReview", request };
    const { verdicts: late } = await checked("namespace-lifecycle:", [review, pod("late", {}, "shop")]);
    assert.match(String(late.late), /because it is being terminated$/);
  });
});

describe("a kind that no cluster serves by itself", () => {
  it("is judged where somebody turned it on", async () => {
    const group = {
      ...named("PodGroup", "g", {}, "scheduling.k8s.io/v1alpha2"),
      spec: { podGroupTemplateRef: { workload: { workloadName: "w", podGroupTemplateName: "t" } } },
    };
    const { verdicts } = await checked("pod-group-workload-exists:", [group]);
    assert.match(String(verdicts.g), /^denied; .*Workload "w" not found$/);
    const workload = named("Workload", "w", { spec: { podGroupTemplates: [{ name: "t" }] } }, group.apiVersion);
    const { verdicts: there } = await checked("pod-group-workload-exists:", [group], {
      state: [workload, named("Namespace", "default")],
    });
    assert.equal(there.g, "allowed");
  });
});

describe("what is there in another version", () => {
  it("is read in the one that is asked for, where that is known", async () => {
    const spec = {
      ...{ group: "shop.example", scope: "Namespaced", names: { kind: "Gadget", plural: "gadgets" } },
      versions: ["v1", "v2"].map((name) => ({ name, served: true })),
    };
    const definition = named("CustomResourceDefinition", "gadgets.shop.example", { spec }, "apiextensions.k8s.io/v1");
    const gadget = (version: string, size: number) => named("Gadget", "g", { size }, `shop.example/${version}`);
    const state = [definition, gadget("v1", 1)];
    const { afterwards } = await checked("always-admit:", [gadget("v2", 2)], { state, operation: "DELETE" });
    assert.deepEqual([afterwards.g.apiVersion, afterwards.g.size], ["shop.example/v2", 1]);
    const scaler = (version: string) => named("HorizontalPodAutoscaler", "s", {}, `autoscaling/${version}`);
    const { verdicts } = await checked("always-admit:", [scaler("v1")], { old: [scaler("v2")] });
    assert.equal(
      verdicts.s,
      "undecided; how a HorizontalPodAutoscaler of autoscaling/v2 is converted to autoscaling/v1",
    );
  });

  it("is what webhooks are about that choose by labels of its namespace, unless they are exact", async () => {
    const spec = {
      ...{ group: "shop.example", scope: "Namespaced", names: { kind: "Gadget", plural: "gadgets" } },
      versions: ["v1", "v2"].map((name) => ({ name, served: true })),
    };
    const definition = named("CustomResourceDefinition", "gadgets.shop.example", { spec }, "apiextensions.k8s.io/v1");
    const hook = {
      ...{ name: "team.other.example", clientConfig: { url: "https://far.example" }, sideEffects: "None" },
      rules: [{ apiGroups: ["shop.example"], apiVersions: ["v1"], resources: ["gadgets"], operations: ["CREATE"] }],
      ...{ admissionReviewVersions: ["v1"], namespaceSelector: { matchLabels: { team: "a" } } },
    };
    const verdictUnder = async (more: object) => {
      const api = "admissionregistration.k8s.io/v1";
      const configuration = named("ValidatingWebhookConfiguration", "o", { webhooks: [{ ...hook, ...more }] }, api);
      const gadget = named("Gadget", "g", {}, "shop.example/v2", "shop");
      const webhooks = [await written("equivalent.yaml", configuration)];
      return (await checked("always-pull-images:", [definition, gadget], { webhooks })).verdicts.g;
    };
    assert.match(
      String(await verdictUnder({})),
      /^undecided; team.other.example: whether its namespace has the label team/,
    );
    assert.equal(await verdictUnder({ matchPolicy: "Exact" }), "allowed");
  });
});

describe("what a rule says that is asked twice", () => {
  it("is that it refuses, where it passed the first time", async () => {
    const limits = [{ type: "Container", max: { cpu: "1" } }];
    const state = [named("LimitRange", "l", { spec: { limits } }), named("Namespace", "default")];
    const resources = { limits: { cpu: "2" }, requests: { cpu: "2" } };
    const large = pod("p", { containers: [{ name: "a", image: "a:1", resources }] });
    const { verdicts, passes } = await checked("limit-ranger: , namespace-lifecycle:", [large], { state });
    assert.match(String(verdicts.p), /^denied; .*maximum cpu usage per Container is 1, but limit is 2/);
    assert.deepEqual(passes.p, ["namespace-lifecycle"]);
  });
});

describe("what check says of the whole", () => {
  it("is which rules asked the cluster, and no others", async () => {
    const { notes } = await checked("limit-ranger: , priority: , always-pull-images:", [named("ConfigMap", "c")]);
    assert.deepEqual(notes, []);
    const both = await checked("limit-ranger: , priority: , always-pull-images:", [pod("p")]);
    assert.deepEqual(both.notes, [asks("limit-ranger, priority ask")]);
  });

  it("is that entries wait too long for a cluster, which are judged here all the same", async () => {
    const slow = ["always-pull-images", "priority", "runtime-class"].map((name) => `${name}: { timeoutSeconds: 9 }`);
    const { verdicts, notes } = await checked(slow.join(", "), [pod("p")]);
    assert.equal(verdicts.p, "changed");
    assert.match(notes.join("\n"), /^a CREATE of pods could wait 27 s for .*; postern manifests refuses that$/m);
  });

  it("is what is there twice, and what nothing is an update of", async () => {
    const old = [named("ConfigMap", "a"), named("Secret", "a")];
    const { notes } = await checked("always-admit:", [named("Secret", "b"), named("Secret", "b")], { old });
    assert.deepEqual(
      notes.map((note) => note.replaceAll(`${folder}/`, "")),
      [
        "Secret b is in all.yaml:1 already; in all.yaml:6 it counts as an update of that",
        "--old old.yaml:1 ConfigMap a is none of the manifests, and left out",
        "--old old.yaml:6 Secret a is none of the manifests, and left out",
      ],
    );
  });
});

describe("policies", () => {
  const group = "policy.kcloudlabs.io/v1alpha1";
  const condition = {
    ...{ cond: "Equal", dataRef: { from: "current", path: "metadata.namespace" } },
    ...{ value: { string: "default" }, message: "not in default" },
  };
  const policy = named(
    "ClusterValidatePolicy",
    "elsewhere",
    {
      spec: {
        resourceSelectors: ["ConfigMap", "Pod"].map((kind) => ({ apiVersion: "v1", kind })),
        validateRules: [{ targetOperations: ["CREATE"], template: { type: "condition", condition } }],
      },
    },
    group,
  );
  const refused = "denied; not in default";

  it("that exist are asked about what they select, with the definitions of their kinds or without", async () => {
    const definition = named("CustomResourceDefinition", "d", {}, "apiextensions.k8s.io/v1");
    const names = { kind: "ClusterValidatePolicy", plural: "clustervalidatepolicies" };
    const spec = { group: group.split("/")[0], names, scope: "Cluster", versions: [{ name: "v1alpha1" }] };
    for (const state of [[policy], [policy, { ...definition, spec }]]) {
      const { verdicts, notes } = await checked("policy-validate:", [pod("p"), named("Secret", "s")], { state });
      assert.deepEqual([verdicts, notes], [{ p: refused, s: "allowed" }, []]);
    }
  });

  it("among the manifests hold for what comes after them", async () => {
    const manifests = [pod("earlier"), policy, pod("later"), named("ConfigMap", "m")];
    const { verdicts, notes } = await checked("policy-validate:", manifests);
    // ConfigMaps are sent before policies.
    assert.deepEqual(verdicts, { m: "allowed", earlier: "allowed", elsewhere: "allowed", later: refused });
    assert.deepEqual(notes, [
      "each ClusterValidatePolicy among the manifests holds for what is sent after it; in a cluster, once postern manifests has been applied again",
      asks("policy-validate asks"),
    ]);
  });

  it("that aren't there leave nothing to call for, and that is said", async () => {
    const { verdicts, notes } = await checked("policy-validate:", [named("ConfigMap", "m")]);
    assert.deepEqual(verdicts, { m: "allowed" });
    assert.match(notes.join("\n"), /^policy-validate is called for nothing, as far as is known; /m);
  });

  it("without a name stop nothing", async () => {
    const { verdicts } = await checked("policy-validate:", [
      { ...policy, metadata: {} },
      { ...policy, metadata: null },
    ]);
    assert.match(String(verdicts[""]), /^denied; metadata.name or generateName is required/);
  });
});

describe("admission policies and quotas", () => {
  const group = "admissionregistration.k8s.io/v1";
  const resourceRules = [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE"] }];
  const denying = [
    named("ValidatingAdmissionPolicy", "closed", {
      spec: { matchConstraints: { resourceRules }, validations: [{ expression: "false" }] },
    }),
    named("ValidatingAdmissionPolicyBinding", "closed", {
      spec: { policyName: "closed", validationActions: ["Deny"] },
    }),
  ].map((one) => ({ ...one, apiVersion: group }));
  const quota = named("ResourceQuota", "none", { spec: { hard: { pods: "0" } } });
  const byPolicy = "undecided; ValidatingAdmissionPolicy closed matches it, and policies in CEL are not evaluated here";
  const byQuota = "undecided; ResourceQuota none of namespace default counts it, and quotas are not evaluated here";
  const home = named("Namespace", "default");
  const cases: [name: string, manifests: object[], state: object[] | undefined, verdict: string][] = [
    ["that exist", [pod("p")], [...denying, home], byPolicy],
    ["among the manifests, also behind the object", [pod("p"), ...denying], undefined, byPolicy],
    ["that nothing binds", [pod("p"), ...denying.slice(0, 1)], undefined, "allowed"],
    ["that count what exists", [pod("p")], [quota, home], byQuota],
    ["that count, among the manifests", [pod("p"), quota], undefined, byQuota],
    ["that count elsewhere", [pod("p", {}, "shop"), quota], undefined, "allowed"],
  ];
  for (const [name, manifests, state, verdict] of cases)
    it(`leave the verdict open, or not, ${name}`, async () =>
      assert.equal(
        (await checked("deny-service-external-ips:", manifests, state ? { state } : {})).verdicts.p,
        verdict,
      ));

  it("leave the verdict of the Pods open that a workload would make", async () => {
    const template = { spec: { containers: [{ name: "a", image: "a:1" }] } };
    const web = named("Deployment", "web", { spec: { template } }, "apps/v1");
    for (const [standing, verdict] of [
      [denying, byPolicy],
      [[quota], byQuota],
    ] as const) {
      const { verdicts } = await checked("deny-service-external-ips:", [web, ...standing], { alsoPods: true });
      assert.deepEqual([verdicts.web, verdicts["web-"]], ["allowed", verdict]);
    }
  });

  it("hide no denial", async () => {
    const { verdicts } = await checked("always-deny: { exempt: { users: [joe] } }", [pod("p"), ...denying]);
    assert.match(String(verdicts.p), /^denied; .*; ValidatingAdmissionPolicy closed matches it/);
  });
});

describe("what check can't read", () => {
  const wrong: [name: string, object: object, verdict: string][] = [
    [
      "a kind in a version that has none of it",
      named("Deployment", "o", {}, "extensions/v1beta1"),
      "undecided; what Deployment of extensions/v1beta1 is; Kubernetes 1.36 has none, but Deployment of apps/v1",
    ],
    [
      "a kind that is spelt otherwise",
      named("pod", "o"),
      "undecided; what pod of v1 is; Kubernetes 1.36 has none, but Pod of v1",
    ],
    ["a kind that nobody has", named("Bean", "o"), "undecided; what Bean of v1 is; Kubernetes 1.36 has none"],
    [
      "a kind that somebody may define",
      named("Pod", "o", {}, "example.com/v1"),
      "undecided; which resource Pod of example.com/v1 is, only its CustomResourceDefinition says; it may be among the manifests or in --state",
    ],
    ["an object of the wrong shape", named("Pod", "o", { spec: "x" }), 'denied; spec must be an object, not "x"'],
  ];
  for (const [name, object, verdict] of wrong)
    it(`is ${name}`, async () => assert.equal((await checked("always-admit:", [object])).verdicts.o, verdict));

  const group = "admissionregistration.k8s.io/v1";
  const entry = (rule: object, more: object = {}) =>
    named("ValidatingWebhookConfiguration", "o", {
      ...{ apiVersion: group },
      webhooks: [
        {
          ...{ name: "o.other.example", clientConfig: { url: "https://far.example" }, sideEffects: "None" },
          ...{ admissionReviewVersions: ["v1"], ...more },
          rules: [
            { ...{ apiGroups: ["example.com"], apiVersions: ["v1"] }, resources: ["*"], operations: ["*"], ...rule },
          ],
        },
      ],
    });
  const policy = [
    named("MutatingAdmissionPolicy", "m", {
      ...{ apiVersion: group },
      spec: {
        matchConstraints: {
          resourceRules: [
            { apiGroups: ["example.com"], apiVersions: ["*"], resources: ["gadgets"], operations: ["CREATE"] },
          ],
        },
      },
    }),
    named("MutatingAdmissionPolicyBinding", "m", { apiVersion: group, spec: { policyName: "m" } }),
  ];
  const quota = named("ResourceQuota", "q", { spec: { hard: { "count/widgets.example.com": "0" } } });
  const concerned: [name: string, others: { webhooks?: object[]; state?: object[] }, verdict: RegExp][] = [
    ["allowed where no entry is about its group", {}, /^allowed$/],
    ["open where an entry is about its group", { webhooks: [entry({})] }, /^undecided/],
    ["open where an entry is about another version", { webhooks: [entry({ apiVersions: ["v2"] })] }, /^undecided/],
    [
      "allowed where an entry is about another version alone",
      { webhooks: [entry({ apiVersions: ["v2"] }, { matchPolicy: "Exact" })] },
      /^allowed$/,
    ],
    ["allowed where an entry is about deletions", { webhooks: [entry({ operations: ["DELETE"] })] }, /^allowed$/],
    ["allowed where an entry is about a part of it", { webhooks: [entry({ resources: ["*/status"] })] }, /^allowed$/],
    ["open where a policy may match it", { state: policy }, /^undecided/],
    ["open where a quota may count it", { state: [quota] }, /^undecided/],
  ];
  for (const [name, { webhooks = [], state = [] }, verdict] of concerned)
    it(`is a kind that nobody defined, and it is ${name}`, async () => {
      const widget = named("Widget", "w", {}, "example.com/v1");
      const files = webhooks.length > 0 ? { webhooks: [await written("theirs.yaml", ...webhooks)] } : {};
      const existing = [named("Namespace", "default"), ...state];
      const { verdicts } = await checked("always-pull-images:", [widget], { ...files, state: existing });
      assert.match(String(verdicts.w), verdict);
    });

  it("is a kind that Kubernetes itself would have to define, and it is open whatever entries are about", async () => {
    const { verdicts } = await checked("always-pull-images:", [named("Deployment", "d", {}, "extensions/v1beta1")]);
    assert.match(String(verdicts.d), /^undecided; what Deployment of extensions\/v1beta1 is;/);
  });

  const usage: [name: string, setup: Partial<Pick<CheckOptions, "user" | "namespace">>, sentence: RegExp][] = [
    ["a user without a name", { user: { username: "" } }, /^--as must name a user$/],
    ["no namespace", { namespace: "" }, /^--namespace takes the name of one, such as default, not ""$/],
    ["what can be no namespace", { namespace: "A b" }, /not "A b"$/],
  ];
  for (const [name, setup, sentence] of usage)
    it(`is ${name}`, () => assert.rejects(checked("always-admit:", [pod("p")], setup), { message: sentence }));

  it("is a manifest in the place of others' webhooks", async () => {
    const webhooks = [await written("hooks.yaml", pod("p"))];
    await assert.rejects(checked("always-admit:", [pod("p")], { webhooks }), {
      message: /^--webhooks .*hooks\.yaml:1 is a Pod, no MutatingWebhookConfiguration and no Validating/,
    });
  });
});

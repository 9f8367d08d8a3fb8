import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { worlds } from "#lib/cluster/live.ts";
import { memoryOf } from "#lib/cluster/memory.ts";
import type { Case } from "#lib/recording/recording.ts";
import type { UserInfo } from "#lib/review.ts";
import { readCases } from "../../infra/catalogue/cases.ts";
import { readCatalogue } from "../../infra/catalogue/registry.ts";
import { openCertificate } from "../../infra/keys/keys.ts";
import { calledAs, calling } from "../../infra/parity/asking.ts";
import {
  aloneBecause,
  asksServices,
  benchOf,
  type Court,
  flagsFor,
  openCourt,
  remembers,
} from "../../infra/parity/cases.ts";
import { comparable, compare, diffOf } from "../../infra/parity/compare.ts";
import { pluginsIn, requireBinaries } from "../../infra/parity/control-plane/binaries.ts";
import type { Call } from "../../infra/parity/control-plane/client.ts";
import { bootCluster, type Cluster } from "../../infra/parity/control-plane/cluster.ts";
import { spoil } from "../../infra/parity/generator.ts";
import { outcomes } from "../../infra/parity/outcomes.ts";
import { portsAmong, spoiler } from "../../infra/parity/parity.ts";
import { noticed, patient, register, servePostern, serveRules } from "../../infra/parity/postern.ts";
import { needs } from "../parts.ts";
import { scenarios } from "./scenarios.ts";

// The real API server judges: the same requests to one with the plugins compiled in, and to one without them that
// calls Postern by its manifests; and the cases of every rule.
const catalogue = await readCatalogue();
const binaries = await requireBinaries().catch(() => undefined);
const all: string[] = binaries ? (await pluginsIn(binaries)).all : [];
const ports = portsAmong(catalogue);
// A server that refuses everything leaves nothing else to compare; its cases stand below, the rest in parity.test.ts.
const sociable = ports.filter(({ rule }) => !rule.exemptionRequired);
const alone = new Map(binaries ? ports.map((port) => [port.name, aloneBecause(port, all, binaries)]) : []);
const benches = Map.groupBy(
  sociable.filter(({ name }) => alone.get(name) === undefined),
  benchOf,
);
const defaultOn = ports
  .map(({ rule }) => rule.twin)
  .filter(({ defaultOn, plugin }) => defaultOn && all.includes(plugin));
const wishes = { flags: flagsFor(all), disable: defaultOn.map(({ plugin }) => plugin), rbac: true };

it("has scenarios for every port", () => {
  const asked = sociable.filter(({ rule }) => !asksServices(rule) && !remembers(rule)).map(({ name }) => name);
  assert.deepEqual(Object.keys(scenarios).sort(), asked.toSorted());
});

describe("on a real API server", await needs("API server"), () => {
  const upstream = new Map<string, Cluster>();
  let ours: Cluster;
  let postern: Awaited<ReturnType<typeof servePostern>>;
  const stops: (() => Promise<unknown>)[] = [];
  const admin: UserInfo = { username: "admin", groups: ["system:masters"] };

  before(async () => {
    const binaries = await requireBinaries();
    const folder = await mkdtemp(join(tmpdir(), "postern-spoiler-"));
    stops.push(() => rm(folder, { recursive: true, force: true }));
    const certificate = await openCertificate(folder, "127.0.0.1");
    const spoilers = await serveRules([spoiler], "rules: { spoiler: }", { certificate });
    stops.push(spoilers.stop);
    const clusters = [...benches].map(([bench, ports]) => {
      // Together they may not keep the API server waiting for long.
      const rules = ports.map(({ name, rule: { twin } }) => [
        name,
        { timeoutSeconds: 2, settings: { ...twin.settings } },
      ]);
      return [bench, { rules: Object.fromEntries(rules) }] as const;
    });
    let world: ReturnType<typeof worlds> | undefined;
    postern = await servePostern(
      JSON.stringify({ clusters: Object.fromEntries(clusters) }),
      (cluster, milliseconds) => {
        assert.ok(world);
        return world(cluster, milliseconds);
      },
    );
    stops.push(postern.stop);

    const earlier = (bench?: string) =>
      Object.entries(scenarios)
        .filter(([rule]) => benches.get(bench ?? benchFor(rule))?.some(({ name }) => name === rule))
        .flatMap(([, some]) => some.flatMap(({ before = [] }) => before));
    const fill = (bench?: string) => async (as: Cluster["as"]) => {
      await as("admin")(theAccount);
      for (const call of earlier(bench)) {
        const { code, body } = await as("admin")(call);
        assert.ok(code < 300, `${JSON.stringify(call)}: ${body.message}`);
      }
    };
    const booted = [...benches].map(async ([bench, ports]) => {
      const enable = ports.map(({ rule }) => rule.twin.plugin);
      const cluster = await bootCluster(binaries, { ...wishes, late: { enable, fill: fill(bench) } });
      stops.push(cluster.stop);
      upstream.set(bench, cluster);
    });
    [ours] = await Promise.all([bootCluster(binaries, wishes), ...booted]);
    stops.push(ours.stop);
    const connection = { server: ours.server, ca: ours.ca, credentials: { token: ours.tokenOf("admin") } };
    // What was read is forgotten at once: scenarios don't wait until others have seen what they change.
    world = worlds(
      Object.fromEntries(clusters.map(([name]) => [name, connection])),
      memoryOf({ entries: 0, bytes: 0 }),
    );
    await fill()(ours.as);
    for (const [bench] of benches)
      await register(ours.admin, calledAs(bench, patient(postern.manifests(bench, bench))));
    const spoilt = upstream.get(benchFor("always-pull-images"));
    assert.ok(spoilt);
    for (const { admin } of [spoilt, ours]) await register(admin, patient(spoilers.manifests({ name: "spoiler" })));

    const probe = (kind: string, metadata: object, spec: object): Call => {
      const path = `/api/v1/namespaces/default/${kind.toLowerCase()}s?dryRun=All`;
      const impersonate = calling(benchFor("always-pull-images"), admin);
      const body = { apiVersion: "v1", kind, metadata: { name: "probe", ...metadata }, spec };
      return { method: "POST", path, impersonate, body };
    };
    const containers = [{ name: "a", image: "a" }];
    const service = probe("Service", {}, { ports: [{ port: 1 }], externalIPs: ["192.0.2.9"] });
    const pod = probe("Pod", { annotations: { [spoil]: "yes" } }, { containers });
    await noticed(
      () => Promise.all([ours.admin(service), ours.admin(pod)]),
      () => ["mutate", "validate"].every((phase) => postern.reports.some((report) => report.phase === phase)),
    );
    for (const { admin } of [spoilt, ours]) {
      spoilers.reports.length = 0;
      await noticed(
        () => admin(pod),
        () => spoilers.reports.length > 0,
      );
    }
    // The first calls may find everybody still waking up.
    postern.reports.length = 0;
  });
  after(async () => {
    for (const stop of stops.reverse()) await stop();
  });

  for (const [rule, some] of Object.entries(scenarios))
    for (const { name, calls } of some)
      it(`answers ${name} as the compiled-in plugins do`, { skip: alone.get(rule) ?? false }, async () => {
        const bench = benchFor(rule);
        for (const call of calls) {
          const asked = { ...call, impersonate: calling(bench, call.impersonate ?? admin) };
          const [wanted, actual] = await Promise.all(
            [upstream.get(bench), ours].map(async (cluster) => {
              assert.ok(cluster);
              const answer = await cluster.admin(asked);
              return comparable({ call: { ...asked, user: "admin" as const }, answer, name: "made" }, "made");
            }),
          );
          assert.ok(wanted && actual);
          const { verdict } = compare(rule, wanted, actual);
          if (verdict === "different")
            assert.fail(`${call.method} ${call.path} ${JSON.stringify(call.body)}\n${diffOf(wanted, actual)}`);
          if (isWatched(call)) await wait(200);
        }
      });

  it("accepts the entries of every rule that there is", async () => {
    const names = catalogue.map(({ name }) => name);
    const anything = ["seLinux", "runAsUser", "supplementalGroups", "fsGroup"].map((of) => `${of}: { rule: RunAsAny }`);
    const settings: Record<string, string> = {
      "allowed-registries": '{ settings: { registries: [ghcr.io/acme, "*.corp.example", "registry.corp:5000"] } }',
      "always-deny": "{ timeoutSeconds: 1, exempt: { users: [admin] } }",
      "default-requests-and-limits":
        "{ timeoutSeconds: 1, settings: { requests: { cpu: 100m }, limits: { memory: 1Gi } } }",
      "default-toleration-seconds": "{ settings: { replaceDefaults: true } }",
      "event-rate-limit": "{ settings: { limits: [{ type: Server, qps: 1, burst: 1 }] } }",
      "image-policy-webhook": '{ settings: { backend: { url: "https://images.example.com" } } }',
      "initial-resources": '{ timeoutSeconds: 1, settings: { prometheus: { url: "https://metrics.example.com" } } }',
      "minimum-replicas": "{ settings: { namespaces: [a, b], namespaceLabels: { a: b } } }",
      "persistent-volume-label": "{ settings: { region: eu-west-1 } }",
      "pod-security-policy": `{ timeoutSeconds: 1, settings: { policies: [{ metadata: { name: p }, spec: { ${anything} }, use: { groups: [a] } }] } }`,
    };
    const exempt = "{ timeoutSeconds: 1, exempt: { namespaces: [kube-system], users: ['it''s'], groups: [a, b] } }";
    const rules = names.map((name) => `${name}: ${settings[name] ?? exempt}`).join(", ");
    const everything = await servePostern(`rules: { ${rules} }`);
    try {
      await register(ours.admin, everything.manifests("everything"), "?dryRun=All");
    } finally {
      await everything.stop();
    }
  });

  it("has every rule do something at that, none fail, and none called more than it has to be", () => {
    assert.deepEqual(
      postern.reports.filter(({ code }) => code !== 200),
      [],
    );
    const acting = new Set(
      postern.reports.filter(({ refused, operations }) => refused || operations).map(({ rule }) => rule),
    );
    assert.deepEqual(
      [...benches.values()].flatMap((ports) => ports.map(({ name }) => name)).filter((name) => !acting.has(name)),
      ["always-admit"],
    );
    // Those that look at the cluster can't say beforehand what there is.
    const blind = new Set(ports.filter(({ rule }) => !rule.needs).map(({ name }) => name));
    const idle = postern.reports.filter(
      ({ rule, refused, operations }) => blind.has(rule ?? "") && !refused && operations === 0,
    );
    // A validating twin is called for what its mutating half has just put right only if somebody spoiled it again; and
    // whether a resource has a name that could stand in a quota, in whose names a certificate is asked for, and whether
    // somebody but the garbage collector changes a bundle is left to the rule.
    const called = new Set(idle.map(({ rule, phase }) => `${rule}/${phase}`));
    assert.deepEqual([...called].sort(), [
      "certificate-subject-restriction/validate",
      "cluster-trust-bundle-attest/validate",
      "extended-resource-toleration/mutate",
    ]);
  });

  it("asks about a large pod, whatever its conditions cost", async () => {
    const guarded = await servePostern(`rules:
      allowed-registries: { settings: { registries: [docker.io, ghcr.io, quay.io, registry.k8s.io] } }
      security-context-deny:`);
    try {
      await register(ours.admin, patient(guarded.manifests("guarded")));
      const image = `docker.io/library/${"a".repeat(200)}:1`;
      const many = Array.from({ length: 3000 }, (_, index) => ({ name: `i${index}`, image }));
      const pod = (spec: object) => ({ apiVersion: "v1", kind: "Pod", metadata: { name: "large" }, spec });
      const post = (body: object) =>
        ours.admin({ method: "POST", path: "/api/v1/namespaces/default/pods?dryRun=All", body });
      const strange = pod({ initContainers: many, containers: [{ name: "a", image: "evil.example/x" }] });
      const chosen = pod({
        initContainers: many,
        containers: [{ name: "a", image, securityContext: { runAsUser: 0 } }],
      });
      await noticed(
        () => post(strange),
        () => guarded.reports.length > 0,
      );
      for (const [body, refusal] of [
        [strange, /evil.example/],
        [chosen, /RunAsUser is forbidden/],
      ] as const) {
        const { code, body: said } = await post(body);
        assert.equal(code, 403);
        assert.match(String(said.message), refusal);
      }
    } finally {
      await guarded.stop();
    }
  });
});

/** The bench of a port by its name. */
function benchFor(rule: string): string {
  const port = ports.find(({ name }) => name === rule);
  assert.ok(port);
  return benchOf(port);
}

const theAccount: Call = {
  method: "POST",
  path: "/api/v1/namespaces/default/serviceaccounts",
  body: { metadata: { name: "default" } },
};

/** Whether plugins look at what it changes when the next request comes. They hear of it a moment later. */
const isWatched = ({ method, path }: Call) =>
  method !== "GET" && /\/(\w+classes|limitranges|nodes|namespaces)(\/[^/]+)?(\?|$)/.test(path);

describe("the cases of each rule", await needs("API server"), () => {
  let court: Court;

  before(async () => {
    const binaries = await requireBinaries();
    const dockets = catalogue.map(async (listed) => ({ listed, cases: await readCases(listed) }));
    court = await openCourt(binaries, await Promise.all(dockets));
  });
  after(() => court?.stop());

  for (const listed of catalogue) {
    it(`answers the cases of ${listed.name} as they say, and as its plugin does`, async (test) => {
      const { differences, asSaid, beside, alone } = await court.hear(listed, await readCases(listed));
      for (const { name, reason } of beside?.leftOut ?? [])
        test.diagnostic(`not beside its plugin: "${name}": ${reason}`);
      if (alone !== undefined) test.diagnostic(alone);
      assert.equal(differences.map(({ name, from, diff }) => `${name} (${from})\n${diff}`).join("\n"), "");
      // An older API server may not serve what its plugins don't look at yet.
      assert.ok(asSaid > 0 || alone !== undefined);
      assert.ok(beside === undefined || beside.equal + Object.keys(beside.known).length > 0);
    });
    const further = outcomes[listed.name];
    if (further)
      it(`has the outcomes of the plugin that ${listed.name} was`, async () => {
        const { differences, notReceivable } = await court.hear(listed, further);
        assert.equal(differences.map(({ name, diff }) => `${name}\n${diff}`).join("\n"), "");
        assert.deepEqual(notReceivable, []);
      });
  }

  it("notices a case that says something else", async () => {
    /** What it says to the first case of a rule, once that is changed. */
    const told = async (rule: string, change: (entry: Case) => Case) => {
      const listed = catalogue.find(({ name }) => name === rule);
      const [first] = listed ? await readCases(listed) : [];
      assert.ok(listed && first);
      const { asSaid, differences } = await court.hear(listed, [change(first)]);
      assert.equal(asSaid, 0);
      return differences.map(({ diff }) => diff).join("\n");
    };
    const rule = "deny-service-external-ips";
    assert.match(
      await told(rule, (entry) => ({ ...entry, refused: "no" })),
      /^- .* request: no".*\n^\+ .*Use of external/m,
    );
    assert.match(
      await told(rule, ({ refused: _, ...entry }) => ({ ...entry, admitted: true })),
      /^- .*201,\n\+ .*403,$/m,
    );
    assert.match(await told(rule, (entry) => ({ ...entry, warnings: ["beware"] })), /^- .*"beware"$/m);
    const unchanged = ({ becomes: _, ...entry }: Case): Case => ({ ...entry, becomes: entry.mutate ?? {} });
    assert.match(await told("default-toleration-seconds", unchanged), /^\+ .*node.kubernetes.io\/not-ready/m);
  });
});

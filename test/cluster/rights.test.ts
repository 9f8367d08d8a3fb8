import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { createLiveCapabilities } from "#lib/cluster/live-capabilities.ts";
import { asksCluster, type Need } from "#lib/needs.ts";
import { toApiPath } from "#lib/objects/api-version.ts";
import { type CatalogueRule, readCatalogue } from "../../infra/catalogue/registry.ts";
import { parseConfig } from "../../infra/project/project.ts";
import { buildFunctionRbacObjects, buildKubernetesGroupName } from "../../infra/webhooks/rbac.ts";
import { requireBinaries } from "../control-plane/binaries.ts";
import { getCollectionPath } from "../control-plane/client.ts";
import { bootCluster, type TestCluster } from "../control-plane/cluster.ts";
import { needs } from "../parts.ts";

// Tests the printed roles on a real API server with RBAC. They must allow the requests that each rule needs, and no
// others.
const rulesThatAskClusters = (await readCatalogue()).filter(({ rule }) => asksCluster(rule));

describe("a rule's rights on a real API server", await needs("API server"), () => {
  let cluster: TestCluster;
  let allKinds: { group: string; version: string; resource: string }[];

  before(async () => {
    const binaries = await requireBinaries();
    const users = Object.fromEntries(
      rulesThatAskClusters.map(({ name }) => [`function:${name}`, [buildKubernetesGroupName("postern", name)]]),
    );
    cluster = await bootCluster(binaries, { rbac: true, users });
    // Some rules must exempt a user.
    const rules = rulesThatAskClusters
      .map(({ name }) => `${name}: { mode: audit, exempt: { users: [nobody] } }`)
      .join(", ");
    const [local] = parseConfig(`rules: { ${rules} }`, rulesThatAskClusters.map(deleteSettingsCheck)).clusters.values();
    assert.ok(local);
    for (const object of buildFunctionRbacObjects(rulesThatAskClusters, local, "postern")) {
      const { code, body } = await cluster.admin({ method: "POST", path: getCollectionPath(object), body: object });
      assert.equal(code, 201, String(body.message));
    }
    allKinds = await listResources(cluster);
  });
  after(() => cluster?.stop());

  const openCapabilities = (name: string) => {
    const { server, ca, getToken } = cluster;
    const credentials = { token: getToken(`function:${name}`) };
    return createLiveCapabilities({ local: { server, ca, credentials } })("local", 10_000);
  };

  for (const { name, rule } of rulesThatAskClusters) {
    const settings = rule.settings ?? {};
    const usedNeeds = Object.values(rule.needs ?? {}).filter(({ isUsed }) => isUsed?.(settings) ?? true);
    const questions = usedNeeds.flatMap((need) => listQuestions(need, settings));
    it(`the rights of ${name} let the rule read and create the objects that it needs`, async () => {
      // The API server checks RBAC first. The refusal of an unserved kind or an invalid object thus shows that RBAC
      // allows the request.
      for (const question of questions)
        assert.match(await askCluster(openCapabilities(name), question), /^$|the API server answers (400|404)/);
    });

    it(`the rights of ${name} let the rule read no objects that it doesn't need`, async () => {
      const capabilities = openCapabilities(name);
      for (const { group, version, resource } of allKinds)
        for (const verb of ["get", "list"] as const) {
          const isNeeded = questions.some(
            (needed) => needed.verb === verb && needed.kind?.group === group && needed.kind.resource === resource,
          );
          if (isNeeded) continue;
          const question = { verb, kind: { group, version, resource } };
          assert.match(await askCluster(capabilities, question), /answers 403/, `${verb} ${resource}.${group}`);
        }
    });
  }
});

/** Returns the questions that a rule with this need and these settings may ask the API server: verbs and kinds. */
function listQuestions({ verb, kind, kinds }: Need<unknown>, settings: object): Pick<Need<unknown>, "verb" | "kind">[] {
  if (!kinds) return [{ verb, ...(kind && { kind }) }];
  // `verb` is "list" here, but such a need also gets objects, and lists which resources are served ("discover").
  const read = kinds(settings).flatMap((kind) => (["get", "list"] as const).map((verb) => ({ verb, kind })));
  return [...read, { verb: "discover" }];
}

/** Sends a question to the API server. Returns the message of the error, or an empty string without an error. */
const askCluster = (
  capabilities: ReturnType<ReturnType<typeof createLiveCapabilities>>,
  { verb, kind = { group: "", resource: "" } }: Pick<Need<unknown>, "verb" | "kind">,
): Promise<string> => {
  const user = { username: "jane", groups: [] };
  const object = { apiVersion: "v1", kind: "None", metadata: { name: "none" } };
  const questions: Record<string, () => Promise<unknown>> = {
    get: () => capabilities.get(kind, "none", undefined, { maxAge: 0 }),
    list: () => capabilities.list(kind, undefined, { maxAge: 0 }),
    create: () => capabilities.create(kind, object),
    may: () => capabilities.may({ user, verb: "get", resource: "pods" }),
    discover: () => capabilities.discover("apps/v1"),
  };
  return (questions[verb]?.() ?? Promise.resolve()).then(
    () => "",
    (error: Error) => error.message,
  );
};

/** Removes a rule's check of its settings, so that the test can omit required settings. They don't affect rights. */
const deleteSettingsCheck = (listed: CatalogueRule): CatalogueRule => {
  const { checkSettings: _, ...rule } = listed.rule;
  return { ...listed, rule };
};

/** Lists the resources that can be listed, in the preferred version of each API group. */
const listResources = async ({ admin }: TestCluster) => {
  const { body } = await admin({ method: "GET", path: "/apis" });
  const groups = body.groups as { preferredVersion: { groupVersion: string } }[];
  const versions = ["v1", ...groups.map(({ preferredVersion }) => preferredVersion.groupVersion)];
  const requests = versions.map(async (groupVersion) => {
    const { resources } = (await admin({ method: "GET", path: toApiPath(groupVersion) })).body as {
      resources: { name: string; verbs: string[] }[];
    };
    const [version = "", group = ""] = groupVersion.split("/").reverse();
    const listable = resources.filter(({ name, verbs }) => !name.includes("/") && verbs.includes("list"));
    return listable.map(({ name }) => ({ group, version, resource: name }));
  });
  return (await Promise.all(requests)).flat();
};

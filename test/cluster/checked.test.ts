import assert from "node:assert/strict";
import { randomInt } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { isDeepStrictEqual } from "node:util";
import fc from "fast-check";
import { createLiveCapabilities } from "#lib/cluster/live-capabilities.ts";
import { createMemoryLedger } from "#lib/ledger.ts";
import type { KubernetesObject } from "#lib/review.ts";
import { prepareForStorage } from "../../infra/apiserver/defaults/defaults.ts";
import { readCatalogue } from "../../infra/catalogue/registry.ts";
import { prepareManifestCheck } from "../../infra/check/check.ts";
import type { ObjectEvaluation } from "../../infra/check/evaluation/object-evaluation.ts";
import { chooseCluster } from "../../infra/config/config.ts";
import { readOrCreateServerCertificate } from "../../infra/keys/keys.ts";
import { parseConfig } from "../../infra/project/project.ts";
import { chooseMinors } from "../choices.ts";
import { listPlugins, requireBinaries, webhookPlugins } from "../control-plane/binaries.ts";
import type { TestClusterClient, TestClusterResponse } from "../control-plane/client.ts";
import { bootCluster, type TestCluster } from "../control-plane/cluster.ts";
import { startSharedKubernetes } from "../kubernetes.ts";
import { formatAnswerDiff } from "../parity/compare.ts";
import { createObjectGenerators } from "../parity/generators/object-generators.ts";
import { type GeneratedKind, parityGeneratedKinds } from "../parity/generators/steps.ts";
import { createParityTestObjects } from "../parity/generators/surroundings.ts";
import { listParityObjectFlags } from "../parity/plugins.ts";
import { applyConfigurations, extendWebhookTimeoutsForTests, serveTestRules } from "../parity/rule-server.ts";
import { openScriptedWebhookEndpoints } from "../parity/scripted-endpoints.ts";
import { needsApiServer } from "../parts.ts";
import { readRows } from "../rows.ts";
import { createObserver, registerWitness } from "./witness.ts";

// The verdict of `check` on a manifest must equal the outcome on a real API server that calls the same rules, in the
// newest minor of Kubernetes or in another one.
type Fields = Record<string, unknown>;

const catalogue = await readCatalogue();
/** The content of checked.test.yaml, beside this file. `statePaths` are the collections of objects that rules read. */
const {
  rules,
  stateful: statePaths,
  kinds,
  namespaces,
} = readRows<{
  rules: Record<string, object>;
  stateful: string[];
  kinds: GeneratedKind[];
  namespaces: string[];
}>(import.meta.filename);

/** Generates an object of one of the kinds, and a namespace. */
const generateManifest = (mayBeInvalid: boolean) => {
  const { buildObject } = createObjectGenerators({ mayBeInvalid });
  return fc
    .constantFrom(...kinds)
    .chain((kind) =>
      fc
        .tuple(buildObject(kind), fc.constantFrom(...namespaces))
        .map(([object, namespace]) => ({ kind, object, namespace })),
    );
};

const { POSTERN_RUNS } = process.env;

for (const minor of chooseMinors({ largeRun: POSTERN_RUNS, suiteGroup: 0 }))
  describe(`the verdict of check for Kubernetes ${minor}`, await needsApiServer(minor), () => {
    const yaml = JSON.stringify({ rules, clusters: { local: { kubernetes: minor } } });
    let folder: string;
    let cluster: TestCluster;
    let admin: TestClusterClient;
    const stops: (() => Promise<unknown>)[] = [];
    const seenObjects = new Map<string, Fields>();

    before(async () => {
      const binaries = await requireBinaries(minor);
      folder = await mkdtemp(join(tmpdir(), "postern-checked-"));
      const certificate = await readOrCreateServerCertificate(folder, "127.0.0.1");
      const endpoints = await openScriptedWebhookEndpoints(certificate, { witness: createObserver(seenObjects) });
      const { defaultOn } = await listPlugins(binaries);
      const disable = defaultOn.filter((plugin) => !webhookPlugins.includes(plugin));
      const flags = listParityObjectFlags(binaries.minor);
      cluster = await bootCluster(binaries, { disable, flags, users: { reader: ["system:masters"] } });
      stops.push(endpoints.stop, cluster.stop);
      admin = cluster.admin;
      await createParityTestObjects(admin, binaries.minor);
      const { server, ca, getToken } = cluster;
      const ledger = createMemoryLedger();
      const openCapabilities = createLiveCapabilities(
        { local: { server, ca, credentials: { token: getToken("reader") } } },
        { openLedger: () => ledger },
      );
      const enabled = catalogue.filter(({ name }) => name in rules);
      const postern = await serveTestRules(enabled, yaml, { certificate, openCapabilities });
      stops.push(postern.stop);
      await applyConfigurations(admin, extendWebhookTimeoutsForTests(postern.manifests()), endpoints.detector);

      await registerWitness(admin, endpoints.url, certificate.ca, seenObjects);
    });
    after(async () => {
      await Promise.all(stops.map((stop) => stop()));
      await rm(folder, { recursive: true, force: true });
    });

    const create = (kind: GeneratedKind, namespace: string, body: unknown): Promise<TestClusterResponse> => {
      const { apiVersion, namespaced } = parityGeneratedKinds[kind];
      const root = String(apiVersion).includes("/") ? `/apis/${apiVersion}` : `/api/${apiVersion}`;
      const path = `${root}${namespaced ? `/namespaces/${namespace}` : ""}/${kind}?dryRun=All&fieldValidation=Ignore`;
      return admin({ method: "POST", path, body });
    };

    const runs = Number(POSTERN_RUNS ?? 50);
    for (const mayBeInvalid of [false, true])
      it(`check's verdict equals the server's on manifests ${mayBeInvalid ? "with" : "without"} faults`, async () => {
        const seed = Number(process.env.POSTERN_SEED ?? randomInt(2 ** 31));
        const sample = fc
          .sample(generateManifest(mayBeInvalid), { seed, numRuns: runs })
          .map(({ kind, object, namespace }, index) => {
            const namespaceField = parityGeneratedKinds[kind].namespaced ? { namespace } : {};
            const name = `${mayBeInvalid ? "odd" : "one"}-${index}`;
            const metadata = { ...Object(object.metadata), name, ...namespaceField };
            return { kind, namespace, object: JSON.parse(JSON.stringify({ ...object, metadata })) };
          });
        const buildPath = (name: string) => join(folder, name);
        const items = sample.map(({ object }) => object);
        await writeFile(buildPath("manifests.json"), JSON.stringify({ apiVersion: "v1", kind: "List", items }));
        const storedAnswers = await Promise.all(statePaths.map((path) => admin({ method: "GET", path })));
        // The items of a list have no kind and apiVersion.
        const state = storedAnswers.flatMap(({ body }) =>
          (Array.isArray(body.items) ? body.items : []).map((item) => ({
            apiVersion: body.apiVersion,
            kind: String(body.kind).replace(/List$/, ""),
            ...item,
          })),
        );
        await writeFile(buildPath("state.json"), JSON.stringify({ apiVersion: "v1", kind: "List", items: state }));
        const check = await prepareManifestCheck({
          catalogue,
          cluster: chooseCluster(parseConfig(yaml, catalogue), undefined),
          harden: false,
          paths: [buildPath("manifests.json")],
          reviews: [],
          state: [buildPath("state.json")],
          isStrict: true,
          validate: "warn",
          old: [],
          webhooks: [],
          hosts: [],
          plugins: ["none"],
          operation: "CREATE",
          namespace: "default",
          alsoPods: false,
          user: { username: "admin", groups: ["system:masters", "system:authenticated"] },
          startKubernetes: startSharedKubernetes,
        });
        const evaluations = new Map<string, ObjectEvaluation>();
        for await (const evaluation of check.evaluations) evaluations.set(evaluation.checked.name, evaluation);
        assert.deepEqual(check.faults, []);

        const differences: string[] = [];
        const verdicts: Record<string, number> = {};
        const compareObject = async ({ kind, namespace, object }: (typeof sample)[number]) => {
          const evaluation = evaluations.get(object.metadata.name);
          assert.ok(evaluation);
          for (let triesLeft = 2; ; triesLeft--) {
            const answer = await create(kind, namespace, object);
            const lastSeen = seenObjects.get(object.metadata.name);
            const [serverOutcome, checkOutcome] = buildComparableOutcomes(answer, lastSeen, evaluation, minor);
            const isEqual = isDeepStrictEqual(checkOutcome, serverOutcome);
            // On a busy machine, the API server may skip a rule that took too long. Then the object is compared again.
            if (!isEqual && triesLeft > 0) continue;
            verdicts[answer.code] = (verdicts[answer.code] ?? 0) + 1;
            if (!isEqual)
              differences.push(
                `${formatAnswerDiff(toAnswer(serverOutcome), toAnswer(checkOutcome))}\n${JSON.stringify(object)}`,
              );
            break;
          }
        };
        for (let start = 0; start < sample.length; start += 6)
          await Promise.all(sample.slice(start, start + 6).map(compareObject));
        assert.deepEqual(differences.slice(0, 3), [], `${differences.length} of ${runs} with seed ${seed}`);
        for (const code of [201, 403, ...(mayBeInvalid ? [422] : [])])
          assert.ok(verdicts[code], `${JSON.stringify(verdicts)}`);
      });
  });

const toAnswer = (body: unknown) => ({ code: 0, warnings: [], body });

/**
 * Returns the API server's outcome and check's outcome, reduced to the parts that can be compared. `lastSeen` is the
 * object that the webhook after all others (the witness) got.
 */
const buildComparableOutcomes = (
  answer: TestClusterResponse,
  lastSeen: Fields | undefined,
  { checked, after }: ObjectEvaluation,
  minor: string,
): [unknown, unknown] => {
  const { code, body, warnings } = answer;
  const denials = checked.denials.map(({ rule, message }) => `${rule}: ${message}`);
  const [, hook = "", text] = /^admission webhook "(.*?)" denied the request: (.*)$/s.exec(String(body.message)) ?? [];
  const denialOfServer = `${hook.replace(/\.postern\.dev$/, "").replace(/^.*\./, "")}: ${text}`;
  // If several rules deny the object, the API server names only one of these rules.
  const denialOfCheck = denials.includes(denialOfServer) ? denialOfServer : denials.join("; ");
  const { managedFields: _, ...metadata } = Object(lastSeen?.metadata);
  // The witness gets an object before the API server prepares it for storage.
  const object = lastSeen && prepareForStorage({ ...lastSeen, metadata } as KubernetesObject, minor);
  const ruleWarnings = checked.warnings.map(({ rule, text }) => `${rule} ${text}`);
  if (code === 201)
    return [
      { object, warnings: warnings.filter(isWarningOfRule).sort(), denied: "" },
      { object: after, warnings: [...new Set(ruleWarnings)].filter(isWarningOfRule).sort(), denied: denialOfCheck },
    ];
  // The API server refuses an invalid object after the mutating webhooks and before the validating ones. So only the
  // changes of the mutating webhooks can be compared.
  if (hook === "") {
    // check reports an object that can't be decoded (400) as a denial, and other faults (422) only as warnings.
    const expectedCode = code === 400 && denials.length > 0 ? 400 : 422;
    return [
      { code, object },
      { code: expectedCode, object: after ?? undefined },
    ];
  }
  return [{ denied: denialOfServer }, { denied: denialOfCheck }];
};

/** Reports whether a warning comes from a rule, and not from the API server itself. */
const isWarningOfRule = (warning: string) => / would (deny|change): /.test(warning);

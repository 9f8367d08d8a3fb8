import assert from "node:assert/strict";
import { type FileHandle, mkdtemp, open, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import type { AdmissionRequest } from "#lib/review.ts";
import { isExempt } from "../../infra/apiserver/admission/exempt.ts";
import { readOrCreateServerCertificate, type ServerCertificate } from "../../infra/keys/keys.ts";
import { createRandom } from "../../infra/testing/random.ts";
import { chooseMinors } from "../choices.ts";
import { listPlugins, requireBinaries, webhookPlugins } from "../control-plane/binaries.ts";
import { bootCluster, type TestCluster } from "../control-plane/cluster.ts";
import { applyConfigurations, deleteTestWebhookConfigurations, waitUntil } from "../parity/rule-server.ts";
import {
  type ConfigurationUseDetector,
  openScriptedWebhookEndpoints,
  type TestEndpointScript,
} from "../parity/scripted-endpoints.ts";
import { needsApiServer } from "../parts.ts";
import {
  type Call,
  findFirstRequest,
  getHookKey,
  listDifferences,
  type ObservedWrite,
  predict,
} from "./dispatcher/prediction.ts";
import { createSet, type ScriptedSet } from "./dispatcher/sets.ts";
import { createWrite, listFixtureCalls, listObjectCalls } from "./dispatcher/writes.ts";

// Sends random webhook configurations and writes to real API servers, of the newest minor and of another one. The calls
// and responses of the API servers are compared with those of Postern's admission chain. The default seed is fixed,
// because its 400 writes cover every case; each minor gets half of them. POSTERN_WRITES sets another number of writes,
// all in the minor of POSTERN_KUBERNETES. Only then, POSTERN_SEED chooses the writes.
const { POSTERN_WRITES, POSTERN_SEED } = process.env;
const minors = chooseMinors({ largeRun: POSTERN_WRITES });
const writeCount = Number(POSTERN_WRITES ?? 400 / minors.length);
const seed = Number((POSTERN_WRITES === undefined ? undefined : POSTERN_SEED) ?? 20261121);
const writesPerSet = 50;
const simultaneousWrites = 12;
/** The key of the user's extra field that holds the word by which the test recognizes a write. */
const wordKey = "postern-word";

const counts = { refusedWrites: 0, calls: 0, writesWithReinvocation: 0, writesWithoutCall: 0 };

for (const [place, minor] of minors.entries())
  describe(`the admission chain equals a real API server of Kubernetes ${minor}`, await needsApiServer(minor), () => {
    let folder: string;
    let certificate: ServerCertificate;
    let cluster: TestCluster;
    let endpoints: Awaited<ReturnType<typeof openScriptedWebhookEndpoints>>;
    let detector: ConfigurationUseDetector;
    let log: FileHandle;
    /** The number of bytes of the audit log that were read. */
    let readBytes = 0;
    const calls = new Map<string, Call[]>();
    const scripts: Record<string, TestEndpointScript> = {};

    before(async () => {
      const binaries = await requireBinaries(minor);
      folder = await mkdtemp(join(tmpdir(), "postern-dispatcher-"));
      certificate = await readOrCreateServerCertificate(folder, "127.0.0.1");
      endpoints = await openScriptedWebhookEndpoints(certificate, scripts);
      detector = endpoints.detector;
      const rules = [{ level: "Request" }];
      const policy = {
        apiVersion: "audit.k8s.io/v1",
        kind: "Policy",
        omitStages: ["RequestReceived", "ResponseStarted"],
      };
      await writeFile(join(folder, "audit.yaml"), JSON.stringify({ ...policy, rules }));
      const flags = [
        `--audit-policy-file=${join(folder, "audit.yaml")}`,
        `--audit-log-path=${join(folder, "audit.log")}`,
      ];
      const { defaultOn } = await listPlugins(binaries);
      const disable = defaultOn.filter((plugin) => !webhookPlugins.includes(plugin) && plugin !== "NamespaceLifecycle");
      cluster = await bootCluster(binaries, { disable, flags });
      log = await open(join(folder, "audit.log"));
      for (const call of listFixtureCalls()) assert.equal((await cluster.admin(call)).code, 201);
      for (const call of listObjectCalls(createRandom(seed)))
        await waitUntil(`${call.path} can't be written`, async () => (await cluster.admin(call)).code === 201);
    });
    after(async () => {
      await Promise.all([cluster?.stop(), endpoints?.stop(), log?.close()]);
      await rm(folder, { recursive: true, force: true });
    });

    /** Lets the endpoints answer by the scripts of a set, and records the calls of each write. */
    const serve = (set: ScriptedSet) => {
      // The names of the webhook entries, by the first segment of the path that they call.
      const hookNames = new Map(
        set.manifests.flatMap(({ webhooks }) =>
          webhooks.map(({ name, clientConfig }) => [new URL(clientConfig.url).pathname.split("/")[1], name] as const),
        ),
      );
      for (const [key, { answer }] of Object.entries(set.scripts))
        scripts[key] = (review) => {
          // The API server always sends these fields, but the parameter's type leaves them optional.
          const { apiVersion, request } = review as unknown as { apiVersion: string; request: AdmissionRequest };
          const [word = ""] = request.userInfo.extra?.[wordKey] ?? [];
          calls.get(word)?.push({ hook: hookNames.get(key) ?? key, request });
          return answer(request, apiVersion);
        };
    };

    /** Returns the audit annotations of writes, by the word that each write carries. */
    const readAnnotations = async (words: ReadonlySet<string>) => {
      const foundAnnotations = new Map<string, Record<string, string>>();
      await waitUntil("the audit log is incomplete", async () => {
        const { size } = await log.stat();
        const { buffer } = await log.read({ buffer: Buffer.alloc(size - readBytes), position: readBytes });
        const end = buffer.lastIndexOf("\n") + 1;
        readBytes += end;
        for (const line of buffer.toString("utf8", 0, end).split("\n")) {
          const [, word] = /"postern-word":\["(\w+)"\]/.exec(line) ?? [];
          if (word === undefined || !words.has(word) || foundAnnotations.has(word)) continue;
          const notes: [string, string][] = Object.entries(JSON.parse(line).annotations ?? {});
          foundAnnotations.set(
            word,
            Object.fromEntries(
              notes.filter(([key]) => !/^(authorization|pod-security|apiserver\.latency)\b/.test(key)),
            ),
          );
        }
        return [...words].every((word) => foundAnnotations.has(word));
      });
      return foundAnnotations;
    };
    // With two minors, one gets the sets 0, 2, 4, … and the other one the sets 1, 3, 5, …
    const sets = Math.ceil(writeCount / writesPerSet);
    const numbers = Array.from({ length: sets }, (_, index) => index * minors.length + minors.length - 1 - place);
    for (const number of numbers)
      it(`the chain has the API server's calls and answers: webhook set ${number}, seed ${seed}`, async (context) => {
        const random = createRandom(seed * 1000 + number);
        const set = createSet(number, endpoints.url, certificate.ca, random);
        serve(set);
        context.after(() => deleteTestWebhookConfigurations(cluster.admin, set.manifests, detector));
        await applyConfigurations(cluster.admin, set.manifests, detector);
        const manifests = set.manifests.map((manifest) => detector.announce(manifest).body);
        const writes = Array.from({ length: writesPerSet }, (_, index) =>
          createWrite(number * writesPerSet + index, random),
        );
        const observed = new Map<string, Omit<ObservedWrite, "annotations">>();
        const users = [
          { username: "jane", groups: ["developers"] },
          { username: "joe", groups: ["system:masters"], extra: { shoe: ["42"] } },
        ];
        const unsent = writes.map((write, index) => ({ write, word: `w${number}x${index}`, user: random.pick(users) }));
        const sentWrites = new Map(unsent.map((planned) => [planned.word, planned]));
        const sendWrites = async () => {
          for (let next = unsent.shift(); next; next = unsent.shift()) {
            const { write, word, user } = next;
            calls.set(word, []);
            const impersonate = { ...user, extra: { ...user.extra, [wordKey]: [word] } };
            const answer = await cluster.admin({ ...write, impersonate });
            observed.set(word, { answer, calls: calls.get(word) ?? [] });
          }
        };
        await Promise.all(Array.from({ length: simultaneousWrites }, sendWrites));
        const notes = await readAnnotations(new Set(observed.keys()));

        const unexplained: string[] = [];
        await Promise.all(
          [...observed].map(async ([word, { answer, calls }]) => {
            const firstRequest = findFirstRequest(calls);
            if (firstRequest === undefined) {
              counts.writesWithoutCall++;
              // The path is, for instance, /apis/GROUP/VERSION/RESOURCE?dryRun=All.
              const [, , group = "", , resource = ""] = sentWrites.get(word)?.write.path.split(/[/?]/) ?? [];
              if (!isExempt({ group, resource }, minor) || calls.length > 0 || answer.code !== 201)
                unexplained.push(`no webhook was called: ${JSON.stringify(answer)}`);
              return;
            }
            const trace = await predict(set, manifests, firstRequest, minor);
            const lines = listDifferences(trace, { answer, calls, annotations: notes.get(word) ?? {} });
            if (!trace.allowed) counts.refusedWrites++;
            counts.calls += calls.length;
            if (trace.steps.some(({ round, outcome }) => round === 1 && outcome === "called"))
              counts.writesWithReinvocation++;
            if (lines.length === 0) return;
            const { write } = sentWrites.get(word) ?? {};
            const steps = trace.steps
              .filter(({ outcome }) => outcome !== "skipped")
              .map(({ hook, round }) => `${round} ${hook}: ${describeScript(set, hook)}`);
            unexplained.push(
              `${write?.method} ${write?.path} ${JSON.stringify(write?.body)}\n${[...lines, ...steps].join("\n")}`,
            );
          }),
        );
        assert.equal(
          unexplained.length,
          0,
          `${unexplained.length} of ${observed.size}:\n${unexplained.slice(0, 3).join("\n\n")}`,
        );
      });
  });

describe("the random writes", await needsApiServer(minors.at(-1) ?? ""), () => {
  it("the random writes include refusals and reinvocations, and nine of ten writes call webhooks", (context) => {
    context.diagnostic(JSON.stringify(counts));
    assert.ok(counts.refusedWrites > 0 && counts.writesWithReinvocation > 0);
    assert.ok(counts.writesWithoutCall < (writeCount * minors.length) / 10);
  });
});

/** Returns the description of a hook's script. */
const describeScript = (set: ScriptedSet, hook: string) => {
  const entry = set.manifests.flatMap(({ webhooks }) => webhooks).find(({ name }) => name === hook);
  return entry && set.scripts[getHookKey(entry)]?.what;
};

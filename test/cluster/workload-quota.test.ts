import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { isDeepStrictEqual } from "node:util";
import { requireQuantity } from "#lib/objects/quantity.ts";
import type { Kept, Reservation } from "../../functions/workload-quota/reservations.ts";
import { bundleRule } from "../../infra/build/bundle.ts";
import { computeFunctionSettings } from "../../infra/build/deployment.ts";
import { readCatalogue } from "../../infra/catalogue/registry.ts";
import { openClusterApi } from "../../infra/clusters/access.ts";
import { applyWantedObjectsToCluster } from "../../infra/clusters/apply.ts";
import { readClusterConnections } from "../../infra/config/connections.ts";
import { readOrCreateServerCertificate, readOrCreateUrlSigner } from "../../infra/keys/keys.ts";
import { parseConfig } from "../../infra/project/project.ts";
import { buildEndpointConfig } from "../../infra/project/served.ts";
import { type GatewayHandler, openImitatedApiGateway } from "../../infra/serve/gateway.ts";
import { createRandom } from "../../infra/testing/random.ts";
import { buildKubernetesGroupName } from "../../infra/webhooks/rbac.ts";
import { buildDynamoDbVariables, createLedgerTable, scanLedgerTable, startDynamoDb } from "../aws/dynamodb.ts";
import { startFaultyDynamoDb } from "../aws/faulty-dynamodb.ts";
import { buildGatewayEvent } from "../aws/gateways.ts";
import { openProcesses, type Program } from "../aws/processes.ts";
import { buildKubeconfig, runProgram } from "../checkout.ts";
import { requireBinaries } from "../control-plane/binaries.ts";
import { createTokenClient } from "../control-plane/client.ts";
import { bootClusters, type TestCluster } from "../control-plane/cluster.ts";
import { waitUntil } from "../parity/rule-server.ts";
import { needs } from "../parts.ts";
import { type Amounts, findHighestSum, findUnchanged, type StoredObject, watchWrites } from "./stored-history.ts";
import {
  chooseWrite,
  collections,
  measureWorkload,
  mpiJobCrd,
  requestAnnotation,
  resources,
  type Write,
} from "./workload-clients.ts";

// Proves that clusters never store more than a quota of workload-quota allows. There are two API servers and one
// ledger. The rule's bundle runs under Lambda's own runtime client, in processes that are killed at random moments.
// Another webhook denies a third of the requests. POSTERN_QUOTA_SECONDS=300 runs the whole proof: 64 clients write for
// five minutes, and the recount starts 71 s after the last write.
const { POSTERN_QUOTA_SECONDS, POSTERN_SEED } = process.env;
const isLongRun = POSTERN_QUOTA_SECONDS !== undefined;
const seconds = Number(POSTERN_QUOTA_SECONDS ?? 12);
const [clients, functions] = isLongRun ? [64, 12] : [12, 4];
const seed = Number(POSTERN_SEED ?? 1);
/**
 * The milliseconds after which no admitted write can be stored any more, as the rule's README states, and one second.
 */
const quiet = 71_000;
/** The milliseconds until the next recount begins. */
const recountInterval = 10 * 60_000;

const rule = "workload-quota";
const root = fileURLToPath(new URL("../..", import.meta.url));
const names = ["east", "west"] as const;
const namespaces = ["a", "b"];
/** The number of object names for each kind and namespace of a cluster. All clients use the same names. */
const objectNames = clients / 4;
/**
 * The quotas: one for all namespaces, and one for namespace a. `unseen` is the percentage of a quota that one cluster
 * may reserve for objects that the rule hasn't read in the cluster yet.
 */
const quotas = [
  { name: "all", unseen: "100%", hard: { "requests.cpu": 8 * clients, "count/deployments.apps": (clients * 3) / 4 } },
  {
    name: "gpus",
    unseen: "80%",
    namespaceLabels: { team: "a" },
    hard: { "requests.nvidia.com/gpu": clients, pods: 3 * clients },
  },
] as const;
type Quota = (typeof quotas)[number];

/**
 * Reports whether a quota counts an object (GROUP/RESOURCE/NAMESPACE/NAME). A quota with `namespaceLabels` counts only
 * objects of the namespace a, which alone has these labels.
 */
const covers = (quota: Quota, object: string) => !("namespaceLabels" in quota) || object.split("/")[2] === "a";
const listHard = ({ hard }: Quota): [name: string, amount: number][] => Object.entries(hard);
const toNumber = (quantity = "0") => Number(requireQuantity(quantity).nanos / 10n ** 9n);
/** Returns the amounts with these names as numbers, without amounts of zero. */
const toNumbers = (amounts: Readonly<Record<string, string | number>>, names: readonly string[]): Amounts =>
  Object.fromEntries(
    names.flatMap((name) => {
      const number = toNumber(String(amounts[name] ?? 0));
      return number === 0 ? [] : [[name, number]];
    }),
  );
const sum = (numbers: Iterable<number>) => [...numbers].reduce((left, right) => left + right, 0);

const [deniedByOther, failedByFunction] = ["denied by the other webhook", "failed because a function gave no answer"];
/**
 * Matches messages of API servers under load, which come with 429, 504 or 500. The write may have been stored
 * nevertheless.
 */
const overload = /timed? ?out|deadline|leader|too many requests/i;
/** The maximum of seconds for which clients write. They stop earlier once each outcome has occurred. */
const mostSeconds = seconds + 120;

/** The content of the ledger at a moment between two times. */
interface LedgerRead {
  start: number;
  end: number;
  /** By quota, the value that contains the sum of its reservations (`used`). */
  valuesByQuota: Map<string, Kept>;
  /** The reservations by quota, cluster and object. */
  reservations: Map<string, Reservation>;
}

const yaml = (kubeconfig: string) =>
  JSON.stringify({
    rules: { [rule]: { settings: { quotas } } },
    clusters: Object.fromEntries(names.map((context) => [context, { connect: { kubeconfig, context } }])),
  });

describe(
  "quotas of two clusters with one ledger",
  await needs("API server", "DynamoDB Local", "runtime client"),
  () => {
    const random = createRandom(seed);
    const stops: (() => unknown)[] = [];
    const clusters = new Map<string, TestCluster>();
    const histories = new Map<string, Awaited<ReturnType<typeof watchWrites>>>();
    /** The last time at which a webhook answered a review of a write, by the write's number. */
    const answers = new Map<string, number>();
    /** Whether the rule has admitted a write, by the number of the write. */
    const ruleAdmitted = new Map<string, boolean>();
    const counts = { deniedBeforeRule: 0, deniedAfterRule: 0, kills: 0, recounts: "" };
    /** The webhooks that were called, such as "east rule" and "west denial". */
    const calledWebhooks = new Set<string>();
    let isDenying = false;
    let processes: Awaited<ReturnType<typeof openProcesses>>;
    let program: Program;
    let table: string;
    let dynamoDb: Awaited<ReturnType<typeof startDynamoDb>>;

    /** Returns the number of the write in a review; undefined if the object of the review has no number. */
    const readNumber = ({ object, subResource }: { object: unknown; subResource?: string }): string | undefined =>
      subResource ? undefined : Object(Object(object).metadata).annotations?.[requestAnnotation];

    /** Lets the rule's function answer a review. If the function is killed, the answer is 502. */
    const askRule = async (event: unknown) => {
      const { rawPath, body } = Object(event);
      calledWebhooks.add(`${rawPath.slice(1).split(".")[0]} rule`);
      const number = readNumber(JSON.parse(body).request);
      const { payload, fault } = await processes.run(program, program, event, "live");
      const isAdmitted = fault === undefined && JSON.parse(Object(payload).body ?? "{}").response?.allowed === true;
      if (number !== undefined) {
        answers.set(number, performance.now());
        ruleAdmitted.set(number, isAdmitted);
      }
      return fault === undefined ? Object(payload) : { statusCode: 502, headers: {}, body: "the function died" };
    };
    /** The reviews that functions have not answered yet. They may take longer than the requests of the API servers. */
    const unanswered = new Set<Promise<unknown>>();
    const answerByRule: GatewayHandler = (request) => {
      const answer = askRule(buildGatewayEvent(request, rule)).finally(() => unanswered.delete(answer));
      unanswered.add(answer);
      return answer;
    };
    const answerByDenial: GatewayHandler = async ({ path, body }) => {
      calledWebhooks.add(`${path.slice(1).split(".")[0]} denial`);
      const { request } = JSON.parse(body.toString());
      const allowed = !isDenying || !random.decide(1 / 3);
      const number = readNumber(request);
      // The API server calls both webhooks at once. This webhook answers before or after the rule. Sometimes it answers
      // so late that the ledger changes much before the write is stored.
      const isLast = isDenying && number !== undefined && random.decide(0.5);
      for (const end = Date.now() + 5000; isLast && !ruleAdmitted.has(number) && Date.now() < end; ) await wait(5);
      if (isLast && random.decide(0.3)) await wait(random.drawBelow(3000));
      if (number !== undefined) {
        answers.set(number, performance.now());
        if (!allowed && !ruleAdmitted.has(number)) counts.deniedBeforeRule++;
        if (!allowed && ruleAdmitted.get(number)) counts.deniedAfterRule++;
      }
      const response = { uid: request.uid, allowed, ...(!allowed && { status: { message: "bad luck" } }) };
      const review = { apiVersion: "admission.k8s.io/v1", kind: "AdmissionReview", response };
      return { statusCode: 200, headers: { "content-type": "application/json" }, body: JSON.stringify(review) };
    };

    before(async () => {
      const folder = await mkdtemp(join(tmpdir(), "postern-quota-"));
      stops.push(() => rm(folder, { recursive: true, force: true }));
      const options = { rbac: true, users: { function: [buildKubernetesGroupName("postern", rule)] } };
      const booting = bootClusters(await requireBinaries(), [options, options]);
      const [booted, startedDynamoDb] = await Promise.all([booting, startDynamoDb()]);
      dynamoDb = startedDynamoDb;
      stops.push(...booted.map(({ stop }) => stop), dynamoDb.stop);
      for (const [index, name] of names.entries()) if (booted[index]) clusters.set(name, booted[index]);

      // The functions are built as `postern build` does, with tokens in place of their role.
      const [file, kubeconfig] = [join(folder, "postern.yaml"), join(folder, "kubeconfig")];
      const state = join(folder, ".postern");
      const clustersByName = Object.fromEntries(clusters);
      await writeFile(kubeconfig, buildKubeconfig(clustersByName, "function"));
      await writeFile(join(folder, "admin"), buildKubeconfig(clustersByName));
      await writeFile(file, yaml(kubeconfig));
      const catalogue = (await readCatalogue()).filter(({ name }) => name === rule);
      const [listed] = catalogue;
      assert.ok(listed);
      const config = parseConfig(yaml(kubeconfig), catalogue);
      const { connections } = await readClusterConnections(config, catalogue, file, "here");
      const dist = join(folder, "dist");
      const endpoint = buildEndpointConfig(config, listed);
      const bundle = await bundleRule(listed, endpoint, dist, { connections: Object.fromEntries(connections) });
      const signer = await readOrCreateUrlSigner(state);
      const settings = computeFunctionSettings(bundle, signer.publicKey, "test");
      table = settings.environment.POSTERN_LEDGER ?? "";
      await createLedgerTable(dynamoDb.url, table);
      program = {
        code: await readFile(join(dist, `${rule}.zip`)),
        hash: bundle.codeSha256,
        timeout: settings.timeout,
        environment: {
          ...settings.environment,
          _HANDLER: "index.handler",
          AWS_LAMBDA_FUNCTION_NAME: `postern-test-${rule}`,
          AWS_LAMBDA_FUNCTION_VERSION: "1",
          AWS_LAMBDA_FUNCTION_MEMORY_SIZE: `${settings.memorySize}`,
          AWS_LAMBDA_LOG_GROUP_NAME: "test",
          AWS_LAMBDA_LOG_STREAM_NAME: "test",
          ...buildDynamoDbVariables(dynamoDb.url),
        },
      };
      processes = await openProcesses(functions);
      stops.push(processes.stop);

      const certificate = await readOrCreateServerCertificate(state, "127.0.0.1");
      const gateway = await openImitatedApiGateway(certificate, "127.0.0.1", 0);
      stops.push(gateway.close);
      gateway.serve(new Map(Object.entries({ [rule]: answerByRule, deny: answerByDenial })));

      await Promise.all(
        names.map(async (name) => {
          const cluster = clusters.get(name);
          assert.ok(cluster);
          const { admin } = cluster;
          const post = async (path: string, body: object) => {
            const { code, body: answer } = await admin({ method: "POST", path, body });
            assert.equal(code, 201, String(answer.message));
          };
          await post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", mpiJobCrd);
          for (const namespace of namespaces)
            await post("/api/v1/namespaces", { metadata: { name: namespace, labels: { team: namespace } } });
          // The objects that `npx postern manifests` prints are applied as a deployment applies them.
          const words = ["--config", file, "--cluster", name, "--url", gateway.url, "--output", "json"];
          words.push("--ca", join(state, "ca.crt"));
          const postern = [join(root, "infra/postern.js"), "manifests", ...words];
          const { code, stdout, stderr } = await runProgram(postern, { env: process.env });
          assert.equal(code, 0, stderr);
          const access = { kubeconfig: join(folder, "admin"), context: name };
          const api = await openClusterApi(name, undefined, access);
          await applyWantedObjectsToCluster(api, JSON.parse(stdout).items, "postern");
          const denyingEntry = {
            name: "deny.example.com",
            admissionReviewVersions: ["v1"],
            sideEffects: "None",
            failurePolicy: "Fail",
            clientConfig: {
              url: `${gateway.url}/${name}.key/deny/validate`,
              caBundle: Buffer.from(certificate.ca).toString("base64"),
            },
            rules: [
              {
                apiGroups: ["apps", "kubeflow.org"],
                apiVersions: ["*"],
                operations: ["*"],
                resources: ["deployments", "deployments/scale", "mpijobs", "mpijobs/scale"],
              },
            ],
          };
          const configuration = { metadata: { name: "deny" }, webhooks: [denyingEntry] };
          await post("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", configuration);
          const [stored, isUpward, number] = [undefined, true, "0"] as const;
          const probe = chooseWrite(random, "kubeflow.org/mpijobs/a/probe", stored, isUpward, number).request;
          await waitUntil("the API server did not call the webhooks", async () => {
            await admin({ ...probe, path: `${probe.path}?dryRun=All` });
            return calledWebhooks.has(`${name} rule`) && calledWebhooks.has(`${name} denial`);
          });
          const history = await watchWrites(cluster, collections, measureWorkload);
          histories.set(name, history);
          stops.push(history.stop);
        }),
      );
    });
    after(async () => {
      for (const stop of stops.reverse()) await stop();
    });

    const getCluster = (name: string) => clusters.get(name) ?? assert.fail(name);
    const getHistory = (name: string) => histories.get(name) ?? assert.fail(name);

    /**
     * Returns the sum that all clusters store of an amount that a quota limits, as far as watch events have arrived.
     */
    const sumStored = (quota: Quota, name: string): number =>
      sum(
        [...histories.values()].flatMap(({ stored }) =>
          [...stored].map(([object, content]) =>
            covers(quota, object) ? (measureWorkload(object, content)[name] ?? 0) : 0,
          ),
        ),
      );

    /** Reports whether all quotas would allow an object to use these amounts, beside what the clusters store now. */
    const wouldBeAllowed = (cluster: string, object: string, wanted: Amounts): boolean => {
      const stored = getHistory(cluster).stored.get(object);
      const used = stored ? measureWorkload(object, stored) : {};
      return quotas
        .filter((quota) => covers(quota, object))
        .every((quota) =>
          listHard(quota).every(([name, hard]) => {
            const growth = (wanted[name] ?? 0) - (used[name] ?? 0);
            return growth <= 0 || sumStored(quota, name) + growth <= hard;
          }),
        );
    };

    const readLedger = async (): Promise<LedgerRead> => {
      const start = performance.now();
      const values = await scanLedgerTable(dynamoDb.url, table);
      const read: LedgerRead = { start, end: performance.now(), valuesByQuota: new Map(), reservations: new Map() };
      for (const [key, value] of values) {
        // The rule's functions have written these values.
        const stored = value as Kept;
        // The third part of a key is the kind of the value. Then come the quota and, for reservations, the cluster.
        const [, , kind, quota = "", , cluster] = key.split("/");
        if (kind === "quota") read.valuesByQuota.set(quota, stored);
        for (const [object, reservation] of Object.entries(stored.objects ?? {}))
          read.reservations.set(`${quota}/${cluster}/${object}`, reservation);
      }
      return read;
    };

    /** Starts a recount as the schedule does, until a call isn't killed. Returns the lines that the function logs. */
    const recount = async (): Promise<string[]> => {
      for (;;) {
        const { fault, lines } = await processes.run(program, program, { reconcile: true }, "live");
        if (fault === undefined) return lines;
      }
    };

    it(`quotas are kept while ${clients} clients write and functions are killed, for ${seconds} s`, async (context) => {
      const outcomes = new Map<string, number>();
      const results = { attempts: 0, admitted: 0, refused: 0, refusedButFree: 0 };
      const faults: string[] = [];
      const started = performance.now();
      const reads: LedgerRead[] = [];
      const isOver = () => {
        const elapsed = (performance.now() - started) / 1000;
        const least = Math.min(results.admitted, results.refused, counts.kills, reads.length);
        return elapsed > mostSeconds || (elapsed > seconds && least > 0);
      };
      const count = (outcome: string) => void outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1);
      let numbers = 0;

      /** Sends a write, and returns its outcome. */
      const send = async (
        client: ReturnType<typeof createTokenClient>["client"],
        cluster: string,
        object: string,
        write: Write,
        number: string,
      ) => {
        const history = getHistory(cluster);
        ruleAdmitted.delete(number);
        const sent = performance.now();
        const { code, body } = await client(write.request).catch(({ message }: Error) => {
          return { code: 0, body: { message } };
        });
        results.attempts++;
        const { message, metadata, details } = Object(body);
        if (code < 300) {
          results.admitted++;
          // The answers to a patch of the scale, and to a patch that removes the last finalizer, don't have the
          // object's revision.
          if (write.what === "delete") history.noteCause((details ?? metadata).uid, sent);
          else if (["create", "replace", "patch"].includes(write.what))
            history.noteCause(metadata.resourceVersion, Math.max(sent, answers.get(number) ?? 0));
          return "admitted";
        }
        if (/exceeded (quota|unseen): /.test(message)) {
          results.refused++;
          if (wouldBeAllowed(cluster, object, write.wanted)) results.refusedButFree++;
          return "refused";
        }
        if (/bad luck/.test(message)) return deniedByOther;
        if (/failed calling webhook/.test(message)) return failedByFunction;
        if (code === 404 || code === 409) return "overtaken";
        if ([0, 429, 504].includes(code) || (code === 500 && overload.test(message))) return "failed under load";
        faults.push(`${write.what} ${object}: ${code} ${message}`);
        return "faulty";
      };

      /** During three quarters of the time, most writes make objects larger, so that quotas are filled. */
      const isUpward = () => {
        const cycle = Math.min(150, seconds);
        return ((performance.now() - started) / 1000) % cycle < cycle * 0.75;
      };

      const writeAsClient = async (_: unknown, index: number) => {
        const random = createRandom(seed * 1000 + index);
        const clients = new Map(
          names.map((name) => {
            const { server, ca, getToken } = getCluster(name);
            return [name, createTokenClient(server, ca, getToken("admin"))];
          }),
        );
        while (!isOver()) {
          const cluster = random.pick(names);
          const { client } = clients.get(cluster) ?? assert.fail();
          const path = [random.pick(resources), random.pick(namespaces), `w${random.drawBelow(objectNames)}`];
          const object = path.join("/");
          const number = `${numbers++}`;
          const stored = getHistory(cluster).stored.get(object);
          const write = chooseWrite(random, object, stored, random.decide(isUpward() ? 0.95 : 0.3), number);
          // While quotas are filled, clients repeat a write until it is stored or a quota refuses it. Later, some
          // clients give up, and the quota stays charged for some time.
          for (let tries = 0; tries < 20 && !isOver(); tries++) {
            const outcome = await send(client, cluster, object, write, number);
            count(`${write.what} ${outcome}`);
            const mayBeRepeated = outcome === deniedByOther || outcome === failedByFunction;
            if (!mayBeRepeated || (!isUpward() && random.decide(0.3))) break;
          }
        }
        for (const { close } of clients.values()) close();
      };
      const killFunctions = async () => {
        while (!isOver()) {
          await wait((isLongRun ? 200 : 400) + random.drawBelow(1000));
          if (processes.kill(random.draw())) counts.kills++;
        }
      };
      const recountOnce = async () => {
        await wait(seconds * 500);
        counts.recounts = (await recount()).flatMap((line) => /"done":"(.*)"/.exec(line)?.[1] ?? []).join("; ");
      };
      const readLedgerRepeatedly = async () => {
        for (; !isOver(); await wait(500)) reads.push(await readLedger());
      };

      isDenying = true;
      const writing = Array.from({ length: clients }, writeAsClient);
      await Promise.all([...writing, killFunctions(), recountOnce(), readLedgerRepeatedly()]);
      isDenying = false;
      while (unanswered.size > 0) await Promise.allSettled(unanswered);
      await waitUntil("watch events are missing", async () => (await listUnwatched()).length === 0);

      assert.deepEqual([...faults, ...[...histories.values()].flatMap((history) => history.faults)], []);
      const writes = new Map([...histories].map(([name, history]) => [name, history.readWrites()]));
      const highest: string[] = [];
      const exceeded = new Set<string>();
      for (const quota of quotas)
        for (const [name, hard] of listHard(quota)) {
          const highestSum = findHighestSum([...writes.values()], ({ object, amounts }) =>
            covers(quota, object) ? (amounts?.[name] ?? 0) : 0,
          );
          highest.push(`${name} ${highestSum.certain} (at most ${highestSum.possible}) of ${hard}`);
          if (highestSum.certain > hard) exceeded.add(`${quota.name} ${name}`);
        }
      // The stored amounts of an object are never more than its reservation. A write is stored only after its charge,
      // and a charge is released only after the rule has read the object in the cluster. Only objects are compared that
      // certainly didn't change while the ledger was read.
      let compared = 0;
      for (const [cluster, clusterWrites] of writes)
        for (const [object, objectWrites] of Map.groupBy(clusterWrites, (write) => write.object))
          for (const { start, end, reservations } of reads) {
            const amounts = findUnchanged(objectWrites, start, end);
            if (amounts === undefined) continue;
            compared++;
            for (const quota of quotas.filter((candidate) => covers(candidate, object)))
              for (const [name] of listHard(quota)) {
                const reserved = toNumber(reservations.get(`${quota.name}/${cluster}/${object}`)?.used[name]);
                const stored = amounts[name] ?? 0;
                if (stored > reserved)
                  exceeded.add(`${cluster} ${object} stores ${stored} ${name}, of which ${reserved} are reserved`);
              }
          }
      const { attempts, admitted, refused, refusedButFree } = results;
      const writeCount = sum([...writes.values()].map(({ length }) => length));
      for (const line of [
        `${attempts} attempts, ${admitted} admitted, ${refused} refused, ${refusedButFree} of them although what was stored left room`,
        `highest sums: ${highest.join(", ")}`,
        `${counts.deniedBeforeRule} denied before the rule admitted them, ${counts.deniedAfterRule} after; ${counts.kills} processes killed`,
        `${writeCount} writes stored; ${compared} comparisons of an object with its reservation; recount: ${counts.recounts}`,
        JSON.stringify(Object.fromEntries(outcomes)),
        `POSTERN_SEED=${seed}`,
      ])
        context.diagnostic(line);
      assert.ok(Math.min(admitted, refused, counts.kills, compared) > 0, "nothing was proven");
      assert.deepEqual([...exceeded], []);
    });

    /**
     * Returns a program whose clock is ahead by these milliseconds, with a proxy that gives the ledger this clock, too.
     */
    const moveClock = async (milliseconds: number): Promise<Program> => {
      const laterDynamoDb = await startFaultyDynamoDb(dynamoDb.url);
      stops.push(laterDynamoDb.stop);
      laterDynamoDb.setFaults(() => ({ clockSkew: milliseconds }));
      const clock = `const Now = Date; globalThis.Date = class extends Now {
        static now = () => Now.now() + ${milliseconds};
        constructor(...words) { super(...(words.length > 0 ? words : [Date.now()])); }
      };`;
      const preload = `--import=data:text/javascript,${encodeURIComponent(clock)}`;
      const variables = { NODE_OPTIONS: preload, ...buildDynamoDbVariables(laterDynamoDb.url) };
      return {
        ...program,
        environment: { ...program.environment, ...variables },
        // The deadline of an invocation is a time of this process's clock.
        timeout: program.timeout + milliseconds / 1000,
      };
    };

    it("quotas count exactly the stored objects after a recount", async () => {
      if (isLongRun) await wait(quiet);
      program = await moveClock(recountInterval + (isLongRun ? 0 : quiet));
      const lines = await recount();
      for (const name of names)
        assert.ok(
          lines.some((line) => line.includes(`"Cluster":"${name}"`) && line.includes("reconciled")),
          lines.join(),
        );
      const { valuesByQuota, reservations } = await readLedger();
      const differences: string[] = [];
      for (const quota of quotas) {
        const hard = listHard(quota).map(([name]) => name);
        const reserved = new Map<string, Amounts>();
        for (const [key, { used }] of reservations)
          if (key.startsWith(`${quota.name}/`)) reserved.set(key, toNumbers(used, hard));
        const stored = new Map<string, Amounts>();
        for (const [cluster, history] of histories)
          for (const [object, one] of history.stored)
            if (covers(quota, object))
              stored.set(`${quota.name}/${cluster}/${object}`, toNumbers(measureWorkload(object, one), hard));
        for (const key of new Set([...reserved.keys(), ...stored.keys()])) {
          const [reservedAmounts, storedAmounts] = [reserved.get(key), stored.get(key)];
          const text = `${key}: reserved ${JSON.stringify(reservedAmounts)}, stored ${JSON.stringify(storedAmounts)}`;
          if (!isDeepStrictEqual(reservedAmounts, storedAmounts)) differences.push(text);
        }
        const clusters = valuesByQuota.get(quota.name)?.clusters;
        if (clusters) differences.push(`${quota.name}: ${JSON.stringify(clusters)} are unseen`);
        for (const name of hard) {
          const [counted, storedSum] = [toNumber(valuesByQuota.get(quota.name)?.used?.[name]), sumStored(quota, name)];
          if (counted !== storedSum)
            differences.push(`${quota.name} ${name}: the sum is ${counted}, and ${storedSum} are stored`);
        }
      }
      assert.deepEqual(differences, []);
    });

    /** Returns the objects whose newest write has caused no watch event yet. */
    const listUnwatched = async (): Promise<string[]> => {
      const unwatched: string[] = [];
      for (const name of names)
        for (const [resource, path] of Object.entries(collections)) {
          const { body } = await getCluster(name).admin({ method: "GET", path });
          const versions = new Map(
            Object(body).items.map(({ metadata }: StoredObject) => [
              `${resource}/${metadata.namespace}/${metadata.name}`,
              metadata.resourceVersion,
            ]),
          );
          const { stored } = getHistory(name);
          const storedNames = [...stored.keys()].filter((object) => object.startsWith(resource));
          for (const object of new Set([...storedNames, ...versions.keys()]) as Set<string>)
            if (versions.get(object) !== stored.get(object)?.metadata.resourceVersion)
              unwatched.push(`${name} ${object}`);
        }
      return unwatched;
    };
  },
);

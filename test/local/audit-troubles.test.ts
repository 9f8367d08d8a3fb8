import assert from "node:assert/strict";
import { readdir, readFile, writeFile } from "node:fs/promises";
import type { IncomingMessage, ServerResponse } from "node:http";
import { createServer } from "node:https";
import { join } from "node:path";
import { before, describe, it } from "node:test";
import { gzipSync } from "node:zlib";
import type { ParsedOptions } from "../../infra/cli/command.ts";
import { Complaint } from "../../infra/cli/complaint.ts";
import { openProject } from "../../infra/cli/roots.ts";
import check from "../../infra/commands/check.ts";
import { readOrCreateServerCertificate, type ServerCertificate } from "../../infra/keys/keys.ts";
import { printConfig, runAudit, runJsonAudit } from "../audits.ts";
import { buildKubeconfig } from "../checkout.ts";
import { createTestFolder } from "../folders.ts";
import { close, listen } from "../listen.ts";

const folder = await createTestFolder();

// Tests `npx postern check --live` with a cluster that fails, is very large, or can't be reached.
describe("an audit of a cluster in trouble", () => {
  let certificate: ServerCertificate;
  before(async () => {
    certificate = await readOrCreateServerCertificate(folder, "127.0.0.1");
    await writeFile(join(folder, "postern.yaml"), printConfig("  always-admit:\n"));
  });

  type Responder = (url: URL, response: ServerResponse, request: IncomingMessage) => object | undefined;

  /**
   * Runs `act` while an imitated API server serves these kinds. The responder of a kind returns the kind's list as an
   * object, or sends the response itself.
   */
  const runWithServer = async (
    kinds: Record<string, Responder>,
    act: (requests: string[]) => Promise<void>,
    version: object = { major: "1", minor: "37" },
  ): Promise<void> => {
    const requests: string[] = [];
    const fixedResponders: Record<string, (url: URL) => object> = {
      "/version": () => version,
      "/api": () => ({ kind: "APIVersions", versions: ["v1"] }),
      "/apis": () => ({ kind: "APIGroupList", groups: [] }),
      "/api/v1": () => ({
        kind: "APIResourceList",
        resources: Object.keys(kinds).map((name) => {
          const kind = { configmaps: "ConfigMap", pods: "Pod", secrets: "Secret", services: "Service" }[name];
          return { name, kind, namespaced: true, verbs: ["list", "create"] };
        }),
      }),
    };
    const server = createServer({ cert: certificate.cert, key: certificate.key }, (request, response) => {
      const url = new URL(request.url ?? "", "https://localhost");
      requests.push(String(request.url));
      const [, , , name = ""] = url.pathname.split("/");
      const namespace = /^\/api\/v1\/namespaces\/([^/]+)$/.exec(url.pathname)?.[1];
      const body =
        fixedResponders[url.pathname]?.(url) ??
        (namespace === undefined
          ? kinds[name]?.(url, response, request)
          : { kind: "Namespace", metadata: { name: namespace } });
      if (body !== undefined) response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(body));
    });
    const address = `https://127.0.0.1:${await listen(server)}`;
    const cluster = { server: address, ca: certificate.ca, getToken: () => "token" };
    await writeFile(join(folder, "kubeconfig"), buildKubeconfig({ c: cluster }));
    try {
      await act(requests);
    } finally {
      await close(server);
    }
  };

  /** Returns a page of a list with `total` objects. The request's token states the first object. */
  const buildPage = (total: number, { searchParams }: URL, data: string) => {
    const start = Number(searchParams.get("continue") ?? 0);
    const end = Math.min(start + Number(searchParams.get("limit")), total);
    const items = Array.from({ length: end - start }, (_, index) => {
      const name = `c${String(start + index).padStart(7, "0")}`;
      return { metadata: { name, namespace: "a", uid: name }, data: { data } };
    });
    const metadata = end < total ? { continue: String(end), remainingItemCount: total - end } : {};
    return { kind: "ConfigMapList", apiVersion: "v1", metadata, items };
  };
  const sendStatus = (response: ServerResponse, code: number, body: object, headers: Record<string, string> = {}) => {
    response.writeHead(code, { "content-type": "application/json", ...headers }).end(JSON.stringify(body));
    return undefined;
  };

  it("an audit repeats a request after a temporary refusal, a lost connection, or an expired list", async () => {
    const troubles: ((response: ServerResponse, request: IncomingMessage, url: URL) => undefined)[] = [
      (response) => sendStatus(response, 429, {}, { "retry-after": "0" }),
      (_, request) => void request.socket.destroy(),
      (response) => sendStatus(response, 503, {}, { "retry-after": "0" }),
      (response, _, url) => sendStatus(response, 410, { metadata: { continue: url.searchParams.get("continue") } }),
      (response) => sendStatus(response, 410, { message: "too old" }),
    ];
    let requestCount = 0;
    const respond: Responder = (url, response, request) => {
      // Every second request has a trouble, but the first page has none.
      const isTroubled = ++requestCount % 2 === 0 && url.searchParams.has("continue");
      const trouble = isTroubled ? troubles.shift() : undefined;
      return trouble ? trouble(response, request, url) : buildPage(40, url, "x");
    };
    await runWithServer({ configmaps: respond }, async () => {
      const { code, objects, faults } = await runJsonAudit(folder, ["--page", "5"]);
      assert.deepEqual(troubles, []);
      assert.deepEqual(faults, []);
      assert.equal(code, 0);
      const allOnOnePage = buildPage(40, new URL("x:?limit=40"), "");
      assert.deepEqual(
        objects.map(({ uid }) => uid).toSorted(),
        allOnOnePage.items.map(({ metadata }) => metadata.uid),
      );
    });
  });

  it("an audit reports a kind whose list fails, and continues with the next kind", async () => {
    await runWithServer(
      {
        secrets: (_, response) => sendStatus(response, 503, { message: "not today" }, { "retry-after": "0" }),
        configmaps: (url) => buildPage(3, url, "x"),
      },
      async (requests) => {
        const { code, objects, stderr } = await runJsonAudit(folder, []);
        assert.equal(code, 3);
        assert.equal(objects.length, 3);
        assert.match(stderr, /^secrets could not be read whole: the API server answers 503: not today$/m);
        const attempts = requests.filter((path) => path.startsWith("/api/v1/secrets"));
        assert.equal(attempts.length, 5);
      },
    );
  });

  it("an audit evaluates rules for the cluster's version, or for the newest one if it can't be read", async () => {
    const settings = "settings: { defaults: { enforce: restricted } }";
    await writeFile(join(folder, "postern.yaml"), printConfig(`  pod-security: { ${settings} }\n`));
    const containerContext = { allowPrivilegeEscalation: false, capabilities: { drop: ["ALL"] } };
    const container = { name: "a", image: "a:1", securityContext: containerContext };
    const securityContext = { seccompProfile: { type: "RuntimeDefault" } };
    // With hostUsers: false, runAsNonRoot isn't required since Kubernetes 1.35.
    const spec = { hostUsers: false, securityContext, containers: [container] };
    const items = [{ metadata: { name: "p", namespace: "a", uid: "p" }, spec }];
    const audit = async (version: object, words: string[] = []) => {
      const verdictsAndNotes: string[] = [];
      const listPods = () => ({ kind: "PodList", apiVersion: "v1", metadata: {}, items });
      const act = async () => {
        const { objects, notes } = await runJsonAudit(folder, words);
        verdictsAndNotes.push(...objects.map(({ verdict }) => verdict), ...notes);
      };
      await runWithServer({ pods: listPods }, act, version);
      return verdictsAndNotes;
    };
    const olderVersion = { major: "1", minor: "34+" };
    assert.deepEqual(await audit(olderVersion), ["denied"]);
    assert.deepEqual(await audit(olderVersion, ["--kubernetes", "1.35"]), ["allowed"]);
    const unknown = "the cluster's version can't be read; rules behave as in the newest Kubernetes";
    assert.deepEqual(await audit({}), ["allowed", unknown]);
    await writeFile(join(folder, "postern.yaml"), printConfig("  always-admit:\n"));
  });

  it("an audit compares the objects in the cluster with the quotas of workload-quota", async () => {
    const quotas = [
      { name: "full", clusters: ["c"], namespaces: ["full"], hard: { pods: 2 } },
      { name: "exceeded", clusters: ["c"], namespaces: ["exceeded"], hard: { pods: 1 } },
      { name: "ended", clusters: ["c"], namespaces: ["ended"], hard: { pods: 1 } },
      { name: "shared", namespaces: ["shared"], hard: { pods: 2 } },
      { name: "small", namespaces: ["small"], hard: { pods: 1 } },
    ];
    const rules = `  workload-quota: { settings: ${JSON.stringify({ quotas })} }\n`;
    await writeFile(
      join(folder, "postern.yaml"),
      `${printConfig(rules)}  d: { connect: { kubeconfig: kubeconfig } }\n`,
    );
    const buildPod = (namespace: string, name: string, ownerReferences: object[] = [], phase = "Running") => {
      const metadata = { namespace, name, uid: name, ownerReferences };
      return { metadata, spec: { containers: [{ name: "a", image: "a:1" }] }, status: { phase } };
    };
    const owner = { apiVersion: "apps/v1", kind: "ReplicaSet", name: "r", uid: "r", controller: true };
    const items = [
      buildPod("ended", "e1"),
      buildPod("ended", "e2", [], "Succeeded"),
      buildPod("exceeded", "x1"),
      buildPod("exceeded", "x2"),
      buildPod("full", "f1"),
      buildPod("full", "f2"),
      buildPod("full", "f3", [owner]),
      buildPod("other", "o1"),
      buildPod("shared", "s1"),
      buildPod("small", "l1"),
      buildPod("small", "l2"),
    ];
    const listPods: Responder = ({ pathname }) => {
      const [, , , , namespace] = pathname.split("/");
      const chosen = items.filter(({ metadata }) => namespace === undefined || metadata.namespace === namespace);
      return { kind: "PodList", apiVersion: "v1", metadata: {}, items: chosen };
    };
    const audit = async (words: string[], respond = listPods) => {
      let lines: string[] = [];
      await runWithServer({ pods: respond }, async () => {
        const { objects } = await runJsonAudit(folder, ["--cluster", "c", ...words]);
        lines = objects.map(({ name, verdict, denials, undecided }) =>
          [name, verdict, ...denials.map(({ message }) => message), ...undecided].join("; "),
        );
      });
      return lines;
    };
    const denied = "denied; exceeded quota";
    const reason = "workload-quota: what quota shared has in use in d";
    const expected = [
      "e1; allowed",
      "e2; allowed",
      ...["x1", "x2"].map((name) => `${name}; ${denied}: exceeded, requested: pods=1, used: pods=1, limited: pods=1`),
      "f1; allowed",
      "f2; allowed",
      "f3; allowed",
      "o1; allowed",
      `s1; undecided; ${reason}`,
      ...["l1", "l2"].map((name) => `${name}; ${denied}: small, requested: pods=1, used: pods=1, limited: pods=1`),
    ];
    assert.deepEqual(await audit([]), expected);
    let failures = 0;
    const failFirst: Responder = (url, response, request) =>
      failures++ < 5
        ? sendStatus(response, 503, { message: "not today" }, { "retry-after": "0" })
        : listPods(url, response, request);
    const failedRead =
      "workload-quota: what uses quotas: pods could not be read whole: the API server answers 503: not today";
    const undecidedLines = (await audit([], failFirst)).filter((line) => !line.includes("allowed"));
    const expectedLines = ["e1", "x1", "x2", "f1", "f2", "f3", "s1", "l1", "l2"].map(
      (name) => `${name}; undecided; ${failedRead}`,
    );
    assert.deepEqual(undecidedLines, expectedLines);
    await writeFile(join(folder, "postern.yaml"), printConfig("  always-admit:\n"));
  });

  it("an audit follows no redirect, limits a compressed answer, and ends at a circular list", async () => {
    let strayRequests = 0;
    const otherServer = createServer({ cert: certificate.cert, key: certificate.key }, (_, response) => {
      strayRequests++;
      response.end("{}");
    });
    const location = `https://127.0.0.1:${await listen(otherServer)}/api/v1/secrets`;
    const largeGzip = gzipSync(Buffer.alloc(64 * 1024 * 1024, " "));
    const controlText = "\u001b[31m::error::";
    await runWithServer(
      {
        secrets: (_, response) => sendStatus(response, 302, { message: `gone ${controlText}` }, { location }),
        services: (_, response) => void response.writeHead(200, { "content-encoding": "gzip" }).end(largeGzip),
        configmaps: ({ searchParams }) => {
          const name = searchParams.get("continue") === "a" ? "b" : "a";
          return { metadata: { continue: name }, items: [{ metadata: { name, namespace: "a", uid: name } }] };
        },
      },
      async () => {
        const { code, objects, stderr } = await runJsonAudit(folder, []);
        assert.equal(code, 3);
        assert.deepEqual(
          objects.map(({ name }) => name),
          ["a", "b"],
        );
        assert.match(stderr, /^secrets could not be read whole: the API server answers 302: gone \?\[31m::error::$/m);
        assert.match(stderr, /^services could not be read whole: .*: its answer has more than 8388608 bytes$/m);
        assert.match(stderr, /^configmaps could not be read whole: its list goes in circles$/m);
        assert.equal(strayRequests, 0);
      },
    );
    otherServer.close();
  });

  it("an audit that is interrupted writes complete files, with the results up to the interruption", async () => {
    let auditPid = 0;
    const respond: Responder = (url) => {
      if (!url.searchParams.has("continue")) return buildPage(100, url, "x");
      process.kill(auditPid, "SIGINT");
      return undefined;
    };
    await runWithServer({ configmaps: respond }, async () => {
      await writeFile(join(folder, "out.json"), "from before");
      const words = ["--page", "10", "-o", "json=out.json", "-o", "sarif=out.sarif"];
      const nodeOptions: string[] = [];
      const { code, stdout, stderr } = await runAudit(folder, words, nodeOptions, (pid) => {
        auditPid = pid;
      });
      assert.equal(code, 3, stderr);
      assert.equal(stdout, "10 objects: 10 allowed\n");
      assert.match(stderr, /^ended early: objects after the first 10 were not checked$/m);
      const { objects, isCut } = JSON.parse(await readFile(join(folder, "out.json"), "utf8"));
      assert.deepEqual([objects.length, isCut], [10, true]);
      const [{ invocations }] = JSON.parse(await readFile(join(folder, "out.sarif"), "utf8")).runs;
      assert.equal(invocations[0].executionSuccessful, false);
      const drafts = (await readdir(folder)).filter((name) => /^out\.(json|sarif)\./.test(name));
      assert.deepEqual(drafts, []);
    });
  });

  it("an audit keeps only one page of a large list in memory", {
    skip: process.platform !== "linux" && "memory is read from /proc",
  }, async () => {
    let [openRequests, mostOpenRequests] = [0, 0];
    const data = "x".repeat(10_000);
    const respond: Responder = (url, response) => {
      mostOpenRequests = Math.max(mostOpenRequests, ++openRequests);
      response.on("close", () => openRequests--);
      return buildPage(20_000, url, data);
    };
    await runWithServer({ configmaps: respond }, async (requests) => {
      const words = ["-o", "json=all.json", "-o", "junit=all.xml,sarif=all.sarif,policyreport=all.reports"];
      // All objects together have 200 MB, and their reports have twice as much.
      const { code, stdout, stderr, peak } = await runAudit(folder, words, ["--max-old-space-size=150"]);
      assert.equal(stdout, "20000 objects: 20000 allowed\n", stderr);
      assert.equal(code, 0);
      assert.equal(mostOpenRequests, 1);
      // A page has 250 objects.
      assert.equal(requests.filter((path) => path.startsWith("/api/v1/configmaps")).length, 80);
      assert.ok(peak > 0 && peak < 360, `${peak} MiB`);
    });
  });

  it("an audit fails with one sentence if it can't begin", async () => {
    openProject(join(folder, "postern.yaml"));
    const buildOptions = (changes: Record<string, string>): ParsedOptions => {
      const values: Record<string, string> = { live: "", as: "a", ...changes };
      return {
        text: (name) => values[name],
        texts: (name) => [values[name] ?? []].flat(),
        flag: (name) => values[name] === "",
        number: (name) => (values[name] ? Number(values[name]) : undefined),
      };
    };
    for (const [changes, words, sentence] of [
      [{}, ["k8s"], "--live checks what the cluster has; it can't be combined with k8s"],
      [{ state: "x" }, [], "--live checks what the cluster has; it can't be combined with --state"],
      [{ fix: "" }, [], "--live checks what the cluster has; it can't be combined with --fix"],
      [{ live: "no", page: "3" }, ["k8s"], "--page needs --live"],
      [{ page: "1001" }, [], "--page takes a number from 1 to 1000, not 1001"],
      [
        { operation: "connect" },
        [],
        '--operation takes CREATE, UPDATE or DELETE, not "CONNECT"; other operations need --review',
      ],
      [{ output: "json=x,sarif=./x" }, [], "./x can hold one report; give each --output a file of its own"],
      [{ output: "json=x,sarif=x" }, [], "x can hold one report; give each --output a file of its own"],
    ] as const)
      await assert.rejects(check.run({ options: buildOptions(changes), words: [...words] }), new Complaint(sentence));
    await runWithServer({}, async () => {
      const output = `json=${join(folder, "no/such")}`;
      const unwritable = check.run({ options: buildOptions({ output }), words: [] });
      await assert.rejects(unwritable, /^Error: (.*\/no)\/such can't be written: there is no folder \1$/);
      const { code, stderr } = await runAudit(folder, []);
      assert.deepEqual([code, stderr], [0, "no rule is about anything that cluster c has\n"]);
    });
    await assert.rejects(
      check.run({ options: buildOptions({}), words: [] }),
      /^Error: the kinds of the cluster can't be read: the API server at https:.* can't be reached: .*ECONNREFUSED/,
    );
  });
});

import assert from "node:assert/strict";
import { chmod, readFile, writeFile } from "node:fs/promises";
import { createServer, type Server } from "node:https";
import { join } from "node:path";
import { after, before, beforeEach, describe, it } from "node:test";
import { stringify } from "yaml";
import { list } from "#lib/needs.ts";
import { rule } from "#lib/rule.ts";
import { toCatalogueRule } from "../../test/catalogue-rules.ts";
import { createTestFolder } from "../../test/folders.ts";
import { close, listen } from "../../test/listen.ts";
import { openClusterApi } from "../clusters/access.ts";
import { readOrCreateServerCertificate } from "../keys/keys.ts";
import { parseConfig } from "../project/project.ts";
import { readClusterConnections } from "./connections.ts";
import { createExecCredentialSource } from "./exec-credentials.ts";

const folder = await createTestFolder();
const kubeconfig = join(folder, "config");
const apiVersion = "client.authentication.k8s.io/v1";

describe("the command of a kubeconfig", {
  skip: process.platform === "win32" && "the commands are shell scripts",
}, () => {
  let server: Server;
  let requests: (string | undefined)[] = [];
  /** The tokens that the server accepts; all if the list is empty. */
  let accepted: string[] = [];

  before(async () => {
    const { ca, cert, key } = await readOrCreateServerCertificate(folder, "127.0.0.1");
    server = createServer({ cert, key }, ({ headers: { authorization } }, response) => {
      requests.push(authorization);
      const isAccepted = accepted.length === 0 || accepted.some((token) => authorization === `Bearer ${token}`);
      response.writeHead(isAccepted ? 200 : 401).end('{"kind":"Status","message":"x"}');
    });
    const url = `https://127.0.0.1:${await listen(server)}`;
    const exec = { apiVersion, command: "./plugin", interactiveMode: "Never" };
    const content = {
      "current-context": "prod",
      contexts: [{ name: "prod", context: { cluster: "c", user: "u" } }],
      clusters: [
        { name: "c", cluster: { server: url, "certificate-authority-data": Buffer.from(ca).toString("base64") } },
      ],
      users: [{ name: "u", user: { exec } }],
    };
    await writeFile(kubeconfig, stringify(content));
  });
  after(() => {
    delete process.env.KUBECONFIG;
    return close(server);
  });
  beforeEach(async () => {
    delete process.env.KUBECONFIG;
    [requests, accepted] = [[], []];
    await writeFile(join(folder, "runs"), "");
  });

  /** Writes a plugin that prints the tokens t1, t2, … and the given expirationTimestamp. */
  const writePlugin = async (expirationTimestamp?: string) => {
    const status = JSON.stringify({ token: "tCOUNT", expirationTimestamp }).replace("COUNT", "'$count'");
    const lines = [
      "#!/bin/sh",
      `echo x >> '${folder}/runs'`,
      `count=$(wc -l < '${folder}/runs' | tr -d ' ')`,
      `echo '{"kind":"ExecCredential","apiVersion":"${apiVersion}","status":${status}}'`,
    ];
    await writeFile(join(folder, "plugin"), `${lines.join("\n")}\n`);
    await chmod(join(folder, "plugin"), 0o755);
  };
  const countRuns = async () => (await readFile(join(folder, "runs"), "utf8")).length / 2;
  const open = () => openClusterApi("prod", undefined, { kubeconfig });

  it("the command of a kubeconfig runs once for many requests", async () => {
    await writePlugin();
    const api = await open();
    await Promise.all([api.read("/a"), api.read("/b")]);
    await api.read("/c");
    assert.deepEqual(requests, Array(3).fill("Bearer t1"));
  });

  it("the command of a kubeconfig runs again after its token has expired", async () => {
    await writePlugin("2020-01-01T00:00:00Z");
    const api = await open();
    await api.read("/a");
    await api.read("/b");
    assert.deepEqual(requests, ["Bearer t1", "Bearer t2"]);
    await writePlugin("2999-01-01T00:00:00Z");
    await api.read("/c");
    await api.read("/d");
    assert.deepEqual(requests.slice(2), ["Bearer t3", "Bearer t3"]);
  });

  it("the command runs again after the API server refused its token, and the request is repeated", async () => {
    await writePlugin();
    accepted = ["t2"];
    const api = await open();
    await api.read("/a");
    await api.read("/b");
    assert.deepEqual(requests, ["Bearer t1", "Bearer t2", "Bearer t2"]);
    accepted = ["t9"];
    await assert.rejects(
      api.read("/a"),
      /^Error: cluster prod: the API server doesn't accept the credentials \(401: x\); the token or certificate in \S+config may have expired; renew it$/,
    );
    assert.deepEqual(requests.slice(3), ["Bearer t2", "Bearer t3"]);
  });

  it("the command of a kubeconfig in KUBECONFIG runs if the connect setting has no kubeconfig", async () => {
    await writePlugin();
    process.env.KUBECONFIG = kubeconfig;
    const connect = { server: "https://203.0.113.7", tokenSecret: "a", region: "eu-west-1" };
    for (const present of [undefined, connect, { manifests: "m" }])
      await (await openClusterApi("prod", present)).read("/a");
    assert.equal(requests.length, 3);
    await assert.rejects(
      openClusterApi("west", undefined, {}),
      /^Error: KUBECONFIG finds no context "west" with its cluster and user in \S+config$/,
    );
    await assert.rejects(openClusterApi("west", undefined, { context: "east" }), /KUBECONFIG finds no context "east"/);
  });

  it("the command of a kubeconfig runs for rules on this machine if their cluster has no connect setting", async () => {
    await writePlugin();
    process.env.KUBECONFIG = kubeconfig;
    const asking = rule({ summary: "Asks.", match: [], needs: { all: list("namespaces") }, validate() {} });
    const catalogue = [toCatalogueRule("asking", asking)];
    const read = (clusters: object, where: "here" | "aws") => {
      const config = parseConfig(JSON.stringify({ rules: { asking: {} }, clusters }), catalogue);
      return readClusterConnections(config, catalogue, join(folder, "postern.yaml"), where);
    };
    const { connections, faults } = await read({ prod: {}, west: {} }, "here");
    assert.deepEqual([...connections.keys()], ["prod"]);
    assert.match(faults.join(), /^postern\.yaml clusters\.west: KUBECONFIG finds no context "west" [^,]*$/);
    assert.equal((await read({ local: {} }, "here")).connections.size, 1);
    // Functions get no credentials of this machine.
    assert.deepEqual([(await read({ prod: {} }, "aws")).connections.size, await countRuns()], [0, 0]);
  });

  it("the command of a kubeconfig that postern.yaml names never runs, even with KUBECONFIG", async () => {
    await writePlugin();
    const sentence =
      /would run a program for a token, by exec in \S+config; give this file by --kubeconfig, or by KUBECONFIG and without connect$/;
    for (const value of ["", kubeconfig]) {
      process.env.KUBECONFIG = value;
      await assert.rejects(openClusterApi("prod", { kubeconfig }), sentence);
      await assert.rejects(openClusterApi("prod", { kubeconfig, context: "prod" }, { context: "prod" }), sentence);
    }
    assert.deepEqual([await countRuns(), requests], [0, []]);
  });

  const harmful: [does: string, script: string, sentence: RegExp][] = [
    ["hangs", "sleep 30", /did not end within 1 seconds$/],
    ["ends but leaves a process that keeps its output open", "sleep 30 & exit 1", /did not end within 1 seconds$/],
    ["prints 100 MB", "head -c 100000000 /dev/zero", /printed more than 1048576 bytes$/],
    [
      "prints 100 MB of errors",
      "head -c 100000000 /dev/zero | tr '\\0' x >&2; printf '\\n\\033[2Jthe end\\n\\n' >&2; exit 1",
      /failed with exit code 1: \?\[2Jthe end$/,
    ],
    ["kills itself", "kill -TERM $$", /was ended by SIGTERM$/],
  ];
  for (const [does, script, sentence] of harmful)
    it(`that ${does} is an error`, async () => {
      const exec = { apiVersion, command: "sh", args: ["-c", script], interactiveMode: "Never" };
      const target = { file: kubeconfig, cluster: { content: {} }, server: "", caText: undefined };
      const limits = { alone: script.includes("sleep") ? 1 : 60, interactive: 60 };
      await assert.rejects(createExecCredentialSource(exec, target, limits).read(0), sentence);
    });
});

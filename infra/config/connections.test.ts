import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { before, describe, it } from "node:test";
import { stringify } from "yaml";
import { https, list } from "#lib/needs.ts";
import { rule } from "#lib/rule.ts";
import { toCatalogueRule } from "../../test/catalogue-rules.ts";
import { createTestFolder } from "../../test/folders.ts";
import { readRows } from "../../test/rows.ts";
import { Complaint } from "../cli/complaint.ts";
import { readOrCreateServerCertificate } from "../keys/keys.ts";
import { parseConfig } from "../project/project.ts";
import { readClusterConnections } from "./connections.ts";

/** What must be refused: values of `connect` in postern.yaml, and the kubeconfigs that a `connect` names. */
const { invalidConnects, refusedKubeconfigs } = readRows<{
  invalidConnects: [name: string, connect: object, sentence: string][];
  refusedKubeconfigs: {
    name: string;
    /** The user and the cluster in the kubeconfig, or else the whole kubeconfig. */
    user?: object;
    cluster?: object;
    wholeKubeconfig?: object;
    context?: string;
    says: string;
  }[];
}>(import.meta.filename);

const toBase64 = (text: string) => Buffer.from(text).toString("base64");
const arn = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:postern-AbCdEf";

const folder = await createTestFolder();
const { ca } = await readOrCreateServerCertificate(join(folder, "own"), "127.0.0.1");

describe("a connect setting", () => {
  before(async () => {
    await writeFile(join(folder, "ca.crt"), `${ca}-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n`);
  });

  const asking = rule({ summary: "Asks.", match: [], needs: { all: list("namespaces") }, validate() {} });
  const calling = rule({ summary: "Calls.", match: [], needs: { call: https() }, validate() {} });
  const catalogue = [toCatalogueRule("asking", asking), toCatalogueRule("calling", calling)];
  const readTestConnections = (text: string, where: "here" | "aws" = "aws") =>
    readClusterConnections(parseConfig(text, catalogue), catalogue, join(folder, "postern.yaml"), where);
  const read = async (connect: object, where: "here" | "aws" = "aws") => {
    const config = JSON.stringify({ rules: { asking: {} }, clusters: { prod: { connect } } });
    const { connections, faults } = await readTestConnections(config, where);
    if (faults.length > 0) throw new Complaint(faults.join("\n"));
    return connections.get("prod");
  };
  const expectComplaint = (sentence: string | RegExp) => (error: unknown) => {
    assert.ok(error instanceof Complaint, String(error));
    assert.match(error.message, typeof sentence === "string" ? new RegExp(`^${RegExp.escape(sentence)}$`) : sentence);
    return true;
  };

  const server = "https://203.0.113.7:6443";
  const right: [name: string, connect: object, expected: object][] = [
    [
      "for an EKS cluster has the cluster's name",
      { eks: "prod", region: "eu-west-1", server, ca: "ca.crt" },
      { server, ca, credentials: { eks: "prod", region: "eu-west-1" } },
    ],
    [
      "takes the CA as AWS prints it",
      { eks: "prod", region: "eu-west-1", server, ca: Buffer.from(ca).toString("base64") },
      { server, ca, credentials: { eks: "prod", region: "eu-west-1" } },
    ],
    [
      "with a token in Secrets Manager has the secret's ARN and region",
      { server, ca, tokenSecret: arn },
      { server, ca, credentials: { secret: arn, region: "eu-west-1" } },
    ],
    [
      "with a token in a parameter of SSM has the parameter's name",
      { server: `${server}/`, tokenParameter: "/postern/prod", region: "us-east-1" },
      { server, credentials: { parameter: "/postern/prod", region: "us-east-1" } },
    ],
  ];
  for (const [name, connect, expected] of right) it(name, async () => assert.deepEqual(await read(connect), expected));

  for (const [name, connect, sentence] of invalidConnects)
    it(`${name} is refused`, () =>
      assert.rejects(read(connect), expectComplaint(`postern.yaml:1 clusters.prod.connect ${sentence}`)));
  it("a connect setting with an unknown key is refused", () =>
    assert.rejects(
      read({ eks: "a", region: "b", password: "c" }),
      expectComplaint(/connect.password is unknown; one of eks, region/),
    ));
  it("a connect setting with a number is refused", () =>
    assert.rejects(
      read({ eks: 1, region: "b" }),
      expectComplaint("postern.yaml:1 clusters.prod.connect.eks must be a text, not 1"),
    ));
  it("a connect setting for an EKS cluster is refused without a server; the message says how to get server and CA", () =>
    assert.rejects(
      read({ eks: "prod", region: "eu-west-1" }),
      expectComplaint(/describe-cluster --name prod prints them$/),
    ));
  it("a connect setting with a missing CA file is refused", () =>
    assert.rejects(
      read({ tokenSecret: arn, server, ca: "none.crt" }),
      expectComplaint(
        /^postern.yaml clusters.prod.connect names a ca that is neither .* nor a file that can be read: none.crt \(ENOENT\)$/,
      ),
    ));
  it("a connect setting with base64 that isn't PEM is refused, and the message quotes only its beginning", () =>
    assert.rejects(
      read({ tokenSecret: arn, server, ca: "MII".repeat(1000) }),
      expectComplaint(/ nor its base64, nor a file that can be read: (MII){13}M… \(ENAMETOOLONG\)$/),
    ));

  it("a connect setting with a CA file without a certificate is refused", async () => {
    await writeFile(join(folder, "odd.crt"), "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    await assert.rejects(
      read({ tokenSecret: arn, server, ca: "odd.crt" }),
      expectComplaint(/a certificate in odd.crt that can't be read$/),
    );
    await assert.rejects(
      read({ tokenSecret: arn, server, ca: "own/ca.key" }),
      expectComplaint(/no certificate in PEM in own\/ca.key$|ENOENT/),
    );
  });

  it("a connect setting is required only if a rule reads the cluster", async () => {
    const listFaults = async (text: string) => (await readTestConnections(text)).faults;
    const missing =
      "has no setting connect, but asking must read this cluster; docs/how-to/connect-a-cluster.md says how";
    assert.deepEqual(await listFaults("rules: { calling: , asking: }"), [`postern.yaml clusters.local ${missing}`]);
    assert.deepEqual(await listFaults("rules: { calling: , asking: { mode: 'off' } }"), []);
    const broken = JSON.stringify({ connect: { tokenSecret: arn, server, ca: "none.crt" } });
    assert.deepEqual(await listFaults(`rules: { calling: }\nclusters: { prod: ${broken} }`), []);
  });

  it("a connect setting with a mistake does not affect other clusters", async () => {
    const config = JSON.stringify({
      rules: { asking: {} },
      clusters: {
        prod: { connect: { tokenSecret: arn, server } },
        broken: { connect: { tokenSecret: arn, server, ca: "none.crt" } },
        mine: { connect: { kubeconfig: "config" } },
      },
    });
    const { connections, faults, notes } = await readTestConnections(config);
    assert.deepEqual([...connections.keys()], ["prod"]);
    assert.equal(faults.length, 1);
    assert.deepEqual(notes, [
      "postern.yaml clusters.mine.connect is a kubeconfig, which only works on this machine: functions can't read the cluster",
    ]);
  });

  describe("with a kubeconfig", () => {
    const buildKubeconfig = (user: object, cluster: object = {}) => ({
      "current-context": "now",
      contexts: [
        { name: "now", context: { cluster: "c", user: "u" } },
        { name: "other", context: { cluster: "d", user: "u" } },
        { name: "lost", context: { cluster: "none", user: "u" } },
      ],
      clusters: [
        { name: "c", cluster: { server, "certificate-authority-data": toBase64(ca), ...cluster } },
        { name: "d", cluster: { server: "https://203.0.113.8" } },
      ],
      users: [{ name: "u", user }],
    });
    const readWith = async (content: object, context?: string) => {
      await writeFile(join(folder, "config"), stringify(content));
      return read({ kubeconfig: "config", ...(context && { context }) }, "here");
    };

    it("uses the current context or the named one", async () => {
      const config = buildKubeconfig({ token: "t" });
      assert.deepEqual(await readWith(config), { server, ca, credentials: { token: "t" } });
      assert.deepEqual(await readWith(config, "other"), { server: "https://203.0.113.8", credentials: { token: "t" } });
    });
    it("reads certificates and keys from the kubeconfig or from files", async () => {
      await writeFile(join(folder, "key.pem"), "key");
      const user = { "client-certificate-data": toBase64("cert"), "client-key": "key.pem" };
      const cluster = { "certificate-authority-data": undefined, "certificate-authority": "ca.crt" };
      assert.deepEqual(await readWith(buildKubeconfig(user, cluster)), {
        server,
        ca,
        credentials: { cert: "cert", key: "key" },
      });
    });
    it("reads a token from a file", async () => {
      await writeFile(join(folder, "token"), "t\n");
      const credentials = (await readWith(buildKubeconfig({ tokenFile: "token" })))?.credentials;
      assert.ok(credentials && "read" in credentials);
      assert.deepEqual(await credentials.read(0), { token: "t" });
    });

    for (const { name, user = { token: "t" }, cluster, wholeKubeconfig, context, says } of refusedKubeconfigs)
      it(`${name} is refused`, () =>
        assert.rejects(
          readWith(wholeKubeconfig ?? buildKubeconfig(user, cluster), context),
          expectComplaint(new RegExp(says)),
        ));

    it("that is not YAML is refused without quoting it", async () => {
      await writeFile(join(folder, "config"), 'users: [{ token: "SECRET');
      const failure = await read({ kubeconfig: "config" }, "here").catch((error: Error) => error);
      assert.ok(failure instanceof Complaint);
      assert.match(failure.message, /finds \S+config to be no YAML$/);
    });
  });
});

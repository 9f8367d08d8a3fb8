import assert from "node:assert/strict";
import { chmod, mkdir, readFile, writeFile } from "node:fs/promises";
import { createServer, type Server } from "node:https";
import { delimiter, join } from "node:path";
import { after, before, describe, it } from "node:test";
import { TLSSocket } from "node:tls";
import { stringify } from "yaml";
import { openClusterApi } from "../../infra/clusters/access.ts";
import { readOrCreateServerCertificate, type ServerCertificate } from "../../infra/keys/keys.ts";
import { createTestFolder } from "../folders.ts";
import { runKubectl } from "../kubectl/kubectl.ts";
import { close, listen } from "../listen.ts";
import { needs } from "../parts.ts";
import { readRows } from "../rows.ts";

/** A kubeconfig, and the expected requests. FOLDER, SERVER, CA, CERT and KEY stand for values that the test creates. */
interface Row {
  it: string;
  user?: object;
  cluster?: object;
  /** The files that the variable KUBECONFIG lists before the file with the user and the cluster. */
  before?: object[];
  /** The output of the plugin. */
  prints?: unknown;
  /** The headers and other facts of the request that the server gets from kubectl and from Postern. */
  sends?: object;
  /** The value of KUBERNETES_EXEC_INFO that the plugin gets from kubectl and from Postern. */
  info?: object;
  /** Postern's sentence, as a regular expression, if it refuses the kubeconfig. */
  says?: string;
}

const { rows, differing } = readRows<{ rows: Row[]; differing: Row[] }>(import.meta.filename);

const folder = await createTestFolder();

// Tests that Postern and kubectl send the same requests to an API server if they read the same kubeconfigs.
describe("a kubeconfig", await needs("kubectl"), () => {
  let certificate: ServerCertificate;
  let server: Server;
  let url: string;
  /** The requests that the server got. */
  let received: object[] = [];

  before(async () => {
    certificate = await readOrCreateServerCertificate(folder, "127.0.0.1");
    await writeFile(join(folder, "own-ca.crt"), certificate.ca);
    await writeFile(join(folder, "client.crt"), certificate.cert);
    await writeFile(join(folder, "client.key"), certificate.key);
    await writeFile(join(folder, "token"), "from-file\n");
    await mkdir(join(folder, "bin"), { recursive: true });
    const plugin = '#!/bin/sh\nprintf "%s" "$KUBERNETES_EXEC_INFO" > "$FOLDER/info"\ncat "$FOLDER/printed"\n';
    await writeFile(join(folder, "bin/plugin"), plugin.replaceAll("$FOLDER", folder));
    const failing = "#!/bin/sh\necho 'token: SECRET'\necho first >&2\necho log in again >&2\nexit 3\n";
    await writeFile(join(folder, "bin/failing"), failing);
    for (const name of ["plugin", "failing"]) await chmod(join(folder, "bin", name), 0o755);
    const { cert, key } = certificate;
    server = createServer(
      { cert, key, requestCert: true, rejectUnauthorized: false },
      ({ headers, socket, url }, response) => {
        const comparedHeaders = Object.entries(headers).filter(([name]) => /^authorization$|^impersonate-/.test(name));
        assert.ok(socket instanceof TLSSocket);
        const hasCertificate = socket.getPeerCertificate().raw !== undefined;
        received.push({
          ...Object.fromEntries(comparedHeaders),
          ...(hasCertificate && { certificate: true }),
          ...(url !== "/version" && { path: url }),
        });
        response.writeHead(200, { "content-type": "application/json" }).end('{"major":"1","minor":"37"}');
      },
    );
    url = `https://127.0.0.1:${await listen(server)}`;
  });
  after(async () => {
    delete process.env.KUBECONFIG;
    await close(server);
  });

  /** Replaces the names of values with the values; after BASE64_, with the values in base64. */
  const insertValues = (content: unknown): string => {
    const values = { FOLDER: folder, SERVER: url, CA: certificate.ca, CERT: certificate.cert, KEY: certificate.key };
    return JSON.stringify(content ?? "").replace(/\b(BASE64_)?(FOLDER|SERVER|CA|CERT|KEY)\b/g, (_, base64, name) => {
      const value = values[name as keyof typeof values];
      return base64 ? Buffer.from(value).toString("base64") : JSON.stringify(value).slice(1, -1);
    });
  };

  /** Writes the kubeconfigs of a row, and returns the value of the variable KUBECONFIG that names them. */
  const writeKubeconfigs = async ({ user = {}, cluster, before: others = [], prints }: Row): Promise<string> => {
    const mainFile = {
      "current-context": "now",
      contexts: [{ name: "now", context: { cluster: "c", user: "u" } }],
      clusters: [{ name: "c", cluster: { server: "SERVER", "certificate-authority": "own-ca.crt", ...cluster } }],
      users: [{ name: "u", user }],
    };
    const files = [...others, mainFile].map((content, index) => ({ content, file: join(folder, `config-${index}`) }));
    for (const { content, file } of files) await writeFile(file, stringify(JSON.parse(insertValues(content))));
    const printed = JSON.parse(insertValues(prints));
    await writeFile(join(folder, "printed"), typeof printed === "string" ? printed : JSON.stringify(printed));
    await writeFile(join(folder, "info"), "");
    received = [];
    // kubectl and Postern skip missing files if there are several.
    const missing = others.length > 0 ? [join(folder, "nowhere")] : [];
    return [...missing, ...files.map(({ file }) => file)].join(delimiter);
  };

  /**
   * Runs kubectl or Postern. Returns the request that they send, the plugin's input, and the error if they refuse the
   * kubeconfig.
   */
  const observe = async (run: () => Promise<unknown>) => {
    received = [];
    const error = await run().then(
      () => undefined,
      (failure: Error) => failure.message,
    );
    const info = await readFile(join(folder, "info"), "utf8");
    return {
      sends: received[0],
      ...(error !== undefined && { error }),
      ...(info !== "" && { info: JSON.parse(info) }),
    };
  };
  const observeBoth = async (row: Row) => {
    const files = await writeKubeconfigs(row);
    const kubectl = await observe(() => runKubectl(["get", "--raw", "/version"], "", { KUBECONFIG: files }));
    await writeFile(join(folder, "info"), "");
    process.env.KUBECONFIG = files;
    const postern = await observe(async () => (await openClusterApi("local", undefined)).read("/version"));
    return { kubectl, postern };
  };

  for (const row of rows)
    it(`a kubeconfig ${row.it}`, async () => {
      const { kubectl, postern } = await observeBoth(row);
      if (row.says === undefined) {
        assert.deepEqual(postern, kubectl);
        assert.deepEqual(postern.sends, row.sends);
        if (row.info) assert.deepEqual(postern.info, JSON.parse(insertValues(row.info)));
        return;
      }
      assert.deepEqual([kubectl.sends, postern.sends], [undefined, undefined]);
      assert.notEqual(kubectl.error, undefined);
      assert.match(postern.error ?? "", new RegExp(row.says));
      assert.doesNotMatch(postern.error ?? "", /SECRET|\n/);
    });
  for (const row of differing)
    it(`a kubeconfig ${row.it}`, async () => {
      const { kubectl, postern } = await observeBoth(row);
      assert.deepEqual([kubectl.error, kubectl.sends], [undefined, row.sends]);
      assert.match(postern.error ?? "", new RegExp(String(row.says)));
      assert.equal(postern.sends, undefined);
    });
});

import { execFile } from "node:child_process";
import { hash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { createServer } from "node:http";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { close, listen } from "./listen.ts";

const run = promisify(execFile);
const root = fileURLToPath(new URL("..", import.meta.url));

/** A registry on this machine, without a network. */
export interface NpmRegistry {
  url: string;
  close(): Promise<void>;
}

/** Starts a registry with the packages that this checkout has installed, and with the packages in these folders. */
export const startNpmRegistry = async (folders: readonly string[]): Promise<NpmRegistry> => {
  const { packages } = JSON.parse(readFileSync(join(root, "package-lock.json"), "utf8"));
  const readManifest = (folder: string) => JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const locked = Object.entries<object>(packages).filter(([path]) => path !== "");
  const manifests = [
    ...locked.map(([path, entry]) => {
      const folder = join(root, path);
      // A package for another platform is only described, in the lock file.
      const manifest = existsSync(folder)
        ? readManifest(folder)
        : { name: path.split("node_modules/").at(-1), ...entry };
      return { folder, ...manifest };
    }),
    ...folders.map((folder) => ({ folder, ...readManifest(folder) })),
  ];
  const byName = Map.groupBy(manifests, ({ name }) => name);
  const archives = new Map<string, Promise<Buffer>>();
  /** Returns a package's archive, always with the same bytes. npm also reads archives that aren't compressed. */
  const pack = (folder: string): Promise<Buffer> => {
    const words = ["-cf", "-", "--exclude", "*/node_modules", "-C", dirname(folder), basename(folder)];
    const found =
      archives.get(folder) ??
      run("tar", words, { encoding: "buffer", maxBuffer: 2 ** 28 }).then(({ stdout }) => stdout);
    archives.set(folder, found);
    return found;
  };
  const describePackage = async (name: string, url: string) => {
    const described = (byName.get(name) ?? []).map(async ({ folder, ...manifest }) => {
      const tarball = `${url}/${name}/-/${manifest.version}.tgz`;
      // With the hash, npm takes the package from its cache if the cache has it.
      const integrity = existsSync(folder) ? `sha512-${hash("sha512", await pack(folder), "base64")}` : undefined;
      return [manifest.version, { ...manifest, dist: { tarball, integrity } }];
    });
    const versions = await Promise.all(described);
    return { name, "dist-tags": { latest: versions.at(-1)?.[0] }, versions: Object.fromEntries(versions) };
  };
  const server = createServer(async ({ url = "", headers: { host } }, response) => {
    const [, name = "", version] = /^\/(.+?)(?:\/-\/(.+)\.tgz)?$/.exec(decodeURIComponent(url)) ?? [];
    const versions = byName.get(name);
    if (versions === undefined) response.writeHead(404).end("{}");
    else if (version === undefined) response.end(JSON.stringify(await describePackage(name, `http://${host}`)));
    else response.end(await pack(versions.find((manifest) => manifest.version === version)?.folder));
  });
  const port = await listen(server);
  return { url: `http://127.0.0.1:${port}`, close: () => close(server) };
};

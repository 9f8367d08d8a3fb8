interface PackageManifest {
  [member: string]: unknown;
  version: string;
  license: string;
  exports: Record<string, string>;
  imports: Record<string, string>;
  dependencies: Record<string, string>;
  devDependencies: Record<string, string>;
}

/** Returns the package.json of the published package, which has compiled files, from the one of this checkout. */
export const buildPackageManifest = (manifest: PackageManifest): Partial<PackageManifest> => {
  const {
    private: _private,
    scripts: _scripts,
    devDependencies: _devDependencies,
    optionalDependencies: _optionalDependencies,
    ...published
  } = manifest;
  const mapValues = (paths: Record<string, string>, change: (path: string) => string) =>
    Object.fromEntries(Object.entries(paths).map(([name, path]) => [name, change(path)]));
  return {
    ...published,
    engines: { node: ">=24" },
    exports: mapValues(manifest.exports, (path) => path.replace(/\.ts$/, ".js")),
    // Sources import "#lib/rule.ts" in the package, too.
    imports: { "#lib/*.ts": "./lib/*.js", "#infra/*.ts": "./infra/*.js", "#aws/*": "./infra/aws/clients/*.js" },
  };
};

/** Returns the package.json of create-postern. `config.dependencies` are those of a new project, postern as stated. */
export const buildCreatePackageManifest = (
  { version, license, repository, devDependencies }: PackageManifest,
  postern: string,
) => ({
  name: "create-postern",
  version,
  description: "Makes a project of Kubernetes admission rules",
  license,
  repository,
  type: "module",
  bin: { "create-postern": "create.js" },
  engines: { node: ">=20" },
  config: { dependencies: { postern, osls: devDependencies.osls } },
});

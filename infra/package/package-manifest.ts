interface PackageManifest {
  [member: string]: unknown;
  version: string;
  license: string;
  exports: Record<string, string>;
  imports: Record<string, string>;
  dependencies: Record<string, string>;
  devDependencies: Record<string, string>;
  peerDependencies: Record<string, string>;
  peerDependenciesMeta: Record<string, { optional: boolean }>;
}

/** The package with the module of Kubernetes' handlers. */
export const modulePackageName = "postern-kubernetes";

/**
 * Returns the package.json of the package postern, which has compiled files, from the one of this checkout. It depends on
 * `module`, a version of the module's package; without it, on what a project has of that package.
 */
export const buildPackageManifest = (manifest: PackageManifest, module?: string): Partial<PackageManifest> => {
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
    ...(module === undefined
      ? {
          peerDependencies: { ...manifest.peerDependencies, [modulePackageName]: "*" },
          peerDependenciesMeta: { ...manifest.peerDependenciesMeta, [modulePackageName]: { optional: true } },
        }
      : { dependencies: { ...manifest.dependencies, [modulePackageName]: module } }),
    engines: { node: ">=24" },
    exports: mapValues(manifest.exports, (path) => path.replace(/\.ts$/, ".js")),
    // Sources import "#lib/rule.ts" in the package, too.
    imports: { "#lib/*.ts": "./lib/*.js", "#infra/*.ts": "./infra/*.js", "#aws/*": "./infra/aws/clients/*.js" },
  };
};

/** Returns the package.json of the module's package. */
export const buildModulePackageManifest = ({ license, repository }: PackageManifest, version: string) => ({
  name: modulePackageName,
  version,
  description: "Kubernetes' own handlers of API requests, compiled to WebAssembly for Postern",
  license,
  repository,
});

/** Returns the package.json of create-postern. `packages` are those of Postern that a new project depends on. */
export const buildCreatePackageManifest = (
  { version, license, repository, devDependencies }: PackageManifest,
  packages: Record<string, string>,
) => ({
  name: "create-postern",
  version,
  description: "Makes a project of Kubernetes admission rules",
  license,
  repository,
  type: "module",
  bin: { "create-postern": "create.js" },
  engines: { node: ">=20" },
  config: { dependencies: { ...packages, osls: devDependencies.osls, typescript: devDependencies.typescript } },
});

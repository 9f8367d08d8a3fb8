/** The members of package.json that packing changes. */
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

/** The name of the package with the module of Kubernetes' handlers. */
export const modulePackageName = "postern-kubernetes";

/**
 * Makes the package.json of the package postern from the checkout's package.json. The package depends on the version
 * `module` of the package with Kubernetes' handlers. Without `module`, any version is an optional peer dependency.
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
    // Files in the package still import "#lib/rule.ts", although only lib/rule.js exists there.
    imports: { "#lib/*.ts": "./lib/*.js", "#infra/*.ts": "./infra/*.js", "#aws/*": "./infra/aws/clients/*.js" },
  };
};

/** Returns the package.json of the package with the module of Kubernetes' handlers. */
export const buildModulePackageManifest = ({ license, repository }: PackageManifest, version: string) => ({
  name: modulePackageName,
  version,
  description: "Kubernetes' own handlers of API requests, compiled to WebAssembly for Postern",
  license,
  repository,
});

/** Returns the package.json of create-postern. `packages` are the packages of Postern that a new project depends on. */
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

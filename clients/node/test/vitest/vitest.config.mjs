export default { test: { globalSetup: "../../src/global-setup.js" } };
